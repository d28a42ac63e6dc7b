//! `orion-top` beside a real oriond with the software GPU, and programs that are slow in one way each.

mod causes;
mod link;
mod metrics;
mod pmon;
mod pool;
mod probes;
mod scene;
mod terminal;
