//! The body of a call becomes the method's input, or a problem that names every bad field. An input's first byte
//! chooses the method; the rest is the body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use relay::api::validate::InputSchema;
use serde::{Serialize, de::DeserializeOwned};
use shared::{
    api::{Op, join_tokens, node, nodes, pools, sites, tenants},
    problem::{Code, Problem},
};
use std::sync::LazyLock;

/// Judges a body; a method each.
type Judge = Box<dyn Fn(&[u8]) + Send + Sync>;

static METHODS: LazyLock<Vec<Judge>> = LazyLock::new(|| {
    vec![
        judge(join_tokens::CREATE),
        judge(join_tokens::LIST),
        judge(node::JOIN),
        judge(node::RENEW),
        judge(node::HEARTBEAT),
        judge(pools::CREATE),
        judge(pools::UPDATE),
        judge(sites::CREATE),
        judge(tenants::CREATE),
        judge(nodes::LIST),
    ]
});

fuzz_target!(|data: &[u8]| {
    if let [which, body @ ..] = data {
        METHODS[usize::from(which.wrapping_sub(b'0')) % METHODS.len()](body);
    }
});

fn judge<I: DeserializeOwned + Serialize + 'static, O: 'static>(op: Op<I, O>) -> Judge {
    let schema = InputSchema::compile(&op.method).expect("the schema of a row");
    Box::new(move |body| match schema.read::<I>(body) {
        Ok(input) => {
            // What was taken in has a spelling that is taken in again, as the same.
            let written = serde_json::to_vec(&input).expect("an input can be written");
            let again = schema.read::<I>(&written).expect("a written input is valid");
            assert_eq!(serde_json::to_vec(&again).expect("written before"), written);
        }
        Err(problem) => refusal(&problem),
    })
}

fn refusal(problem: &Problem) {
    assert_eq!((problem.code, problem.status), (Code::InvalidInput, 400));
    assert!(!problem.errors.is_empty());
    assert!(problem.errors.is_sorted());
    assert!(problem.errors.iter().all(|error| !error.message.is_empty()));
}
