//! Whether this worker's kernels can be taken off a GPU before they have ended, and doing it.

// UNSAFETY: calls the driver through C function pointers.

use std::time::{Duration, Instant};

use orion_cuda::driver::Driver;
use orion_cuda::sys::*;

use crate::worker::driver::{channels, load};

/// For so long nothing may come of a kernel that is held; a launch and its end take 10 us otherwise.
const HELD: Duration = Duration::from_millis(2);
/// And so long after it is let go it has to be over. The GPU may be others' meanwhile.
const LET_GO: Duration = Duration::from_secs(10);
/// Stores its number.
const PTX: &std::ffi::CStr = c"
.version 6.0
.target sm_30
.address_size 64
.visible .entry orion_stores(.param .u64 at, .param .u32 number)
{
    .reg .u64 %at;
    .reg .u32 %number;
    ld.param.u64 %at, [at];
    ld.param.u32 %number, [number];
    st.global.u32 [%at], %number;
    ret;
}
";

/// Takes what this process computes off a GPU, in the middle of kernels, and lets it go on.
#[derive(Debug, Clone, Copy)]
pub enum Preemption {
    Software(CUdevice),
    /// By the driver's channels; the GPU's UUID where this process has several.
    Channels(Option<[u8; 16]>),
}

impl Preemption {
    /// Tries it with a kernel of our own, on the first device, whose context is current; nobody else uses the driver
    /// then. Answers why it does not work here, where it does not: what was asked of the driver, and its answer.
    ///
    /// # Errors
    ///
    /// What was taken off the GPU does not go on: this process is of no use any more.
    pub fn proved(
        driver: &Driver,
        devices: &[CUdevice],
        is_software: bool,
    ) -> Result<Result<Preemption, String>, String> {
        let preemption = match (is_software, devices) {
            (true, _) => Preemption::Software(devices[0]),
            (false, [_]) => Preemption::Channels(None),
            (false, _) => Preemption::Channels(Some(load::gpu(driver, devices[0]).uuid)),
        };
        match Trial::begin(driver) {
            Ok(trial) => Ok(trial.holds(preemption)?.map(|()| preemption)),
            Err(why) => Ok(Err(why)),
        }
    }

    /// The same, of another device.
    pub fn of(self, driver: &Driver, device: CUdevice) -> Preemption {
        match self {
            Preemption::Software(_) => Preemption::Software(device),
            Preemption::Channels(gpu) => Preemption::Channels(gpu.map(|_| load::gpu(driver, device).uuid)),
        }
    }

    /// Nothing of this process computes there from then on.
    pub fn stop(self) -> Result<(), String> {
        self.set(false)
    }

    pub fn resume(self) -> Result<(), String> {
        self.set(true)
    }

    fn set(self, goes_on: bool) -> Result<(), String> {
        match self {
            Preemption::Software(device) => {
                orion_soft::hold::set(device, !goes_on);
                Ok(())
            }
            Preemption::Channels(gpu) => channels::enable(gpu, goes_on),
        }
    }
}

/// A kernel, a word that it stores to, and a stream.
struct Trial<'a> {
    driver: &'a Driver,
    module: CUmodule,
    kernel: CUfunction,
    stream: CUstream,
    word: CUdeviceptr,
}

fn done(what: &str, code: CUresult) -> Result<(), String> {
    match code {
        CUDA_SUCCESS => Ok(()),
        code => Err(format!("{what} answered {code}")),
    }
}

impl Trial<'_> {
    fn begin(driver: &Driver) -> Result<Trial<'_>, String> {
        let null = std::ptr::null_mut();
        let mut trial = Trial { driver, module: null, kernel: null.cast(), stream: null.cast(), word: 0 };
        // SAFETY: valid out pointers and an image that ends with a zero.
        unsafe {
            done("cuModuleLoadData", driver.cuModuleLoadData(&mut trial.module, PTX.as_ptr().cast()))?;
            let find = driver.cuModuleGetFunction(&mut trial.kernel, trial.module, c"orion_stores".as_ptr());
            done("cuModuleGetFunction", find)?;
            done("cuStreamCreate", driver.cuStreamCreate(&mut trial.stream, CU_STREAM_NON_BLOCKING))?;
            done("cuMemAlloc", driver.cuMemAlloc_v2(&mut trial.word, 4))?;
        }
        Ok(trial)
    }

    /// As of [`Preemption::proved`].
    fn holds(self, preemption: Preemption) -> Result<Result<(), String>, String> {
        // What a first launch takes it takes now.
        if let Err(why) = self.launch(1).and_then(|()| self.ends(1)) {
            return Ok(Err(why));
        }
        if let Err(why) = preemption.stop() {
            // Some of it may have been.
            let _ = preemption.resume();
            return Ok(Err(why));
        }
        let held = self.launch(2).and_then(|()| match self.is_over_within(HELD)? {
            true => Err("a kernel ran on a GPU that it had been taken off".to_owned()),
            false => Ok(()),
        });
        preemption.resume()?;
        self.ends(2)?;
        Ok(held)
    }

    fn launch(&self, number: u32) -> Result<(), String> {
        let (mut at, mut number) = (self.word, number);
        let mut parameters = [(&raw mut at).cast(), (&raw mut number).cast()];
        let (kernel, stream, none) = (self.kernel, self.stream, std::ptr::null_mut());
        // SAFETY: a kernel with these parameters, which are copied before this returns.
        let code =
            unsafe { self.driver.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, parameters.as_mut_ptr(), none) };
        done("cuLaunchKernel", code)
    }

    fn is_over_within(&self, time: Duration) -> Result<bool, String> {
        let begun = Instant::now();
        loop {
            // SAFETY: a stream of our own.
            match unsafe { self.driver.cuStreamQuery(self.stream) } {
                CUDA_ERROR_NOT_READY if begun.elapsed() < time => std::thread::sleep(Duration::from_micros(50)),
                CUDA_ERROR_NOT_READY => return Ok(false),
                code => return done("cuStreamQuery", code).map(|()| true),
            }
        }
    }

    fn ends(&self, number: u32) -> Result<(), String> {
        if !self.is_over_within(LET_GO)? {
            return Err(format!("a kernel was not over {} s after it could run", LET_GO.as_secs()));
        }
        let mut stored = 0u32;
        // SAFETY: four bytes of a word that was allocated, into a local.
        let copied = unsafe { self.driver.cuMemcpyDtoH_v2((&raw mut stored).cast(), self.word, 4) };
        done("cuMemcpyDtoH", copied)?;
        match stored == number {
            true => Ok(()),
            false => Err(format!("a kernel that was held and let go on stored {stored} for {number}")),
        }
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        // SAFETY: what was made here, each once; what was not made is null.
        unsafe {
            if self.word != 0 {
                self.driver.cuMemFree_v2(self.word);
            }
            if !self.stream.is_null() {
                self.driver.cuStreamDestroy_v2(self.stream);
            }
            if !self.module.is_null() {
                self.driver.cuModuleUnload(self.module);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::driver::load;

    #[test]
    fn kernels_of_the_software_gpu_stand_still_and_go_on() {
        let driver = load::load("soft").expect("it is built in");
        let (mut context, mut device) = (std::ptr::null_mut(), 0);
        // SAFETY: plain calls with valid out pointers.
        unsafe {
            assert_eq!((driver.cuInit(0), driver.cuDeviceGet(&mut device, 0)), (CUDA_SUCCESS, CUDA_SUCCESS));
            assert_eq!(driver.cuDevicePrimaryCtxRetain(&mut context, device), CUDA_SUCCESS);
            assert_eq!(driver.cuCtxSetCurrent(context), CUDA_SUCCESS);
        }
        assert!(Preemption::proved(&driver, &[device], true).is_ok_and(|proved| proved.is_ok()));
        // Without NVIDIA's kernel module there are no channels, and it is said.
        for devices in [&[device][..], &[device, device]] {
            let why = Preemption::proved(&driver, devices, false).expect("it goes on").expect_err("nothing is held");
            assert!(why.contains("no channels that compute"), "{why}");
        }
    }
}
