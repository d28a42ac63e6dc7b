//! Functions answered from what this process knows.
