//! How this process reaches its worker.
