//! What the client's handles mean.

use std::ffi::c_void;
use std::ptr;

use orion_cuda::sys::*;
use orion_wire::Fault;
use orion_wire::handle::Kind;

use crate::worker::session::Session;

impl Session {
    /// The driver's handle; 0 is null.
    pub fn handle(&mut self, kind: Kind, word: u64) -> Result<*mut c_void, CUresult> {
        match (kind, word) {
            (_, 0) => Ok(ptr::null_mut()),
            (Kind::Context, _) => self.context(word).map(|p| p.cast()),
            _ => self.objects.lookup(kind, word).ok_or(CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// As [`Self::handle`], of one that may not be null.
    pub fn existing(&mut self, kind: Kind, word: u64) -> Result<*mut c_void, CUresult> {
        match self.handle(kind, word)? {
            p if p.is_null() => Err(CUDA_ERROR_INVALID_VALUE),
            p => Ok(p),
        }
    }

    /// Gives a client-chosen handle its meaning.
    pub fn bind(&mut self, kind: Kind, word: u64, pointer: *mut c_void) -> Result<(), Fault> {
        if let Some(given_up) = self.objects.make_room(kind, word)? {
            self.give_up(kind, given_up);
        }
        self.objects.put(kind, word, pointer, self.green.home(self.current));
        if kind == Kind::Stream {
            self.note_stream(pointer.cast());
            self.green.stream_made(self.driver, word, pointer.cast());
        }
        Ok(())
    }

    /// As [`Self::bind`], for what lives in `owner` and ends with it.
    pub fn bind_inside(&mut self, owner: u64, kind: Kind, word: u64, pointer: *mut c_void) -> Result<(), Fault> {
        self.bind(kind, word, pointer)?;
        self.objects.put_inside(owner, kind, word);
        Ok(())
    }

    /// Forgets a handle, and those of what lives in its object: the client may give them to other objects from now on.
    /// The driver has destroyed the object, or is about to.
    pub fn unbind(&mut self, kind: Kind, word: u64) {
        if let Some(pointer) = self.objects.lookup(kind, word) {
            self.object_gone(kind, word, pointer as usize);
        }
        self.give_up(kind, word);
    }

    /// As [`Self::unbind`], of an object that stays: nobody can name it any more, and what it has stays charged.
    pub fn give_up(&mut self, kind: Kind, word: u64) {
        let Some(gone) = self.objects.take(kind, word) else { return };
        match kind {
            Kind::Function => _ = self.kernels.remove(&(gone.pointer as usize)),
            Kind::LinkState => _ = self.links.remove(&word),
            Kind::Module | Kind::Library => _ = self.images.remove(&word),
            _ => {}
        }
        for (kind, word) in gone.inside {
            self.unbind(kind, word);
        }
    }

    /// A context has ended, and all that was made in it.
    pub(super) fn unbind_all_in(&mut self, context: u64) {
        for (kind, word) in self.objects.in_context(context) {
            self.unbind(kind, word);
        }
    }

    /// Nobody can name any more what was made in a context, which the driver may have kept.
    pub(super) fn give_up_all_in(&mut self, context: u64) {
        for (kind, word) in self.objects.in_context(context) {
            self.give_up(kind, word);
        }
    }
}
