//! What contexts keep for the stacks of kernels' threads, which is where local memory lies: one stack for each thread
//! that the GPU can hold, as deep as the limit says or as any kernel since it was set has needed.

use std::collections::HashMap;

/// Bytes of one thread's stack.
#[derive(Debug, Clone, Copy, Default)]
struct Depth {
    /// `CU_LIMIT_STACK_SIZE`, once it was set.
    limit: u64,
    /// The deepest kernel.
    kernel: u64,
}

#[derive(Debug, Default)]
pub struct Stacks {
    of: HashMap<u64, Depth>,
    /// Functions that have run, and the context in which they did last.
    seen: HashMap<usize, u64>,
}

impl Stacks {
    /// Whether a function has run in a context, so that there is a stack for it.
    pub fn has_seen(&self, function: usize, context: u64) -> bool {
        self.seen.get(&function) == Some(&context)
    }

    /// A function is about to run that needs so many bytes, for which there is room.
    pub fn see(&mut self, function: usize, context: u64, bytes: u64) {
        self.seen.insert(function, context);
        let depth = self.of.entry(context).or_default();
        depth.kernel = depth.kernel.max(bytes);
    }

    /// The limit was set: stacks are as deep as it says, until a kernel that has run or not needs more.
    pub fn limited(&mut self, context: u64, bytes: u64) {
        self.of.insert(context, Depth { limit: bytes, kernel: 0 });
        self.seen.retain(|_, of| *of != context);
    }

    /// With a kernel that needs so many bytes.
    pub fn with_kernel(&self, context: u64, bytes: u64) -> u64 {
        let depth = self.of.get(&context).copied().unwrap_or_default();
        depth.limit.max(depth.kernel).max(bytes)
    }

    /// Another function may get its number.
    pub fn function_gone(&mut self, function: usize) {
        self.seen.remove(&function);
    }

    pub fn context_gone(&mut self, context: u64) {
        self.of.remove(&context);
        self.seen.retain(|_, of| *of != context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deepest_kernel_counts_and_stays() {
        let mut stacks = Stacks::default();
        assert_eq!(stacks.with_kernel(1, 4096), 4096);
        stacks.see(10, 1, 4096);
        stacks.see(11, 1, 512);
        assert_eq!(stacks.with_kernel(1, 1024), 4096);
        assert_eq!(stacks.with_kernel(2, 1024), 1024, "another context has stacks of its own");
    }

    #[test]
    fn a_limit_that_is_set_forgets_what_kernels_needed() {
        let mut stacks = Stacks::default();
        stacks.limited(1, 65536);
        stacks.see(10, 1, 4096);
        assert_eq!(stacks.with_kernel(1, 8192), 65536);
        stacks.see(11, 1, 131_072);
        stacks.limited(1, 2048);
        assert_eq!(stacks.with_kernel(1, 0), 2048);
        assert!(!stacks.has_seen(11, 1), "it needs its stack again");
    }

    #[test]
    fn a_function_is_seen_in_one_context_until_it_or_that_ends() {
        let mut stacks = Stacks::default();
        stacks.see(10, 1, 4096);
        assert!(stacks.has_seen(10, 1) && !stacks.has_seen(10, 2) && !stacks.has_seen(11, 1));
        stacks.function_gone(10);
        assert!(!stacks.has_seen(10, 1));
        stacks.see(10, 1, 0);
        stacks.context_gone(1);
        assert!(!stacks.has_seen(10, 1));
        assert_eq!(stacks.with_kernel(1, 0), 0);
    }
}
