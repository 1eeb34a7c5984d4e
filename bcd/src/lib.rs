//! bcd
