//! The `bcd` program.

fn main() {}
