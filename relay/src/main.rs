//! The `relay` program.

fn main() {}
