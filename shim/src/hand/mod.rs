//! Functions whose arguments need more than the table can say.
