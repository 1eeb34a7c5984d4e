//! What a client reads from an answer, and what a machine claims to be: any JSON gives a value with one spelling.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shared::{
    hardware::{Identity, Machine},
    problem::Problem,
};

fuzz_target!(|data: &[u8]| {
    if let Ok(problem) = serde_json::from_slice::<Problem>(data) {
        let text = serde_json::to_vec(&problem).expect("a problem can be written");
        let again: Problem = serde_json::from_slice(&text).expect("a written problem can be read");
        assert_eq!(again, problem);
        assert!(problem.to_string().starts_with(problem.code.as_str()));
    }
    for status in [302, 400, 503] {
        if let Some(problem) = Problem::read(status, data) {
            let text = serde_json::to_vec(&problem).expect("a problem can be written");
            assert_eq!(Problem::read(status, &text), Some(problem));
        }
    }
    if let Ok(identity) = serde_json::from_slice::<Identity>(data) {
        let text = serde_json::to_vec(&identity).expect("an identity can be written");
        let again: Identity = serde_json::from_slice(&text).expect("a written identity can be read");
        assert_eq!(again, identity);
        // What is stored is judged again: it comes out as it did.
        let machine = Machine::judge(&identity);
        assert_eq!(Machine::judge(&machine.to_identity()), machine);
    }
});
