//! The registry: which handler does what a row says, and the pipeline that every call of it goes through.

use super::validate::{InputSchema, Schemas};
use crate::{audit, call::Call, fault::Fault};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};
use shared::api::{Access, Method, Op};
use std::{collections::BTreeMap, future::Future};

/// A handler with its types erased: body in, body out.
type Handler = Box<dyn Fn(Call, Bytes) -> BoxFuture<'static, Result<Vec<u8>, Fault>> + Send + Sync>;

/// A row and what it does.
pub struct Bound {
    /// The row.
    pub method: Method,
    handler: Handler,
}

impl Bound {
    /// Reads the body, runs the handler, writes its answer.
    ///
    /// # Errors
    /// INVALID_INPUT with every bad field, or whatever the handler refuses with.
    pub async fn run(&self, call: Call, body: Bytes) -> Result<Vec<u8>, Fault> {
        (self.handler)(call, body).await
    }
}

/// Every method that this relay knows, by name.
#[derive(Default)]
pub struct Registry(BTreeMap<&'static str, Bound>);

impl Registry {
    /// Binds a row to its handler. A handler of other types does not compile.
    ///
    /// # Errors
    /// The row is bound already, or its schema is broken: faults of the table.
    pub fn on<I, O, F, R>(mut self, op: Op<I, O>, handler: F) -> Result<Self, String>
    where
        I: DeserializeOwned + JsonSchema + Send + 'static,
        O: Serialize + JsonSchema + 'static,
        F: Fn(Call, I) -> R + Copy + Send + Sync + 'static,
        R: Future<Output = Result<O, Fault>> + Send + 'static,
    {
        let method = op.method;
        let schema = std::sync::Arc::new(InputSchema::compile(&op.method)?);
        let handler: Handler = Box::new(move |call, body| {
            let schema = schema.clone();
            Box::pin(async move {
                let input = schema.read::<I>(&body)?;
                if let Access::Own(action) = method.access {
                    call.may_own(action)?;
                }
                let beside = audit::beside(&call, &method, &body);
                let work = handler(call, input);
                let output = match beside {
                    Some(beside) => beside.around(work).await,
                    None => work.await,
                }?;
                serde_json::to_vec(&output).map_err(Fault::internal("writing the answer"))
            })
        });
        match self.0.insert(method.name, Bound { method: op.method, handler }) {
            None => Ok(self),
            Some(_) => Err(format!("{} is bound twice", method.name)),
        }
    }

    /// The method of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Bound> {
        self.0.get(name)
    }

    /// Every row, in order of name.
    pub fn methods(&self) -> impl Iterator<Item = &Method> {
        self.0.values().map(|bound| &bound.method)
    }

    /// The input schema of a row with its definitions inlined under `$defs`, as the CLI reads it.
    #[must_use]
    pub fn input_schema(method: &Method) -> serde_json::Value {
        let mut schemas = Schemas::new("/$defs");
        let root = schemas.add(method.input);
        serde_json::json!({"root": root, "$defs": schemas.definitions()})
    }
}
