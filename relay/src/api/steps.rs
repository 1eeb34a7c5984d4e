//! Steps that handlers share: what was found and may be seen, one page of a list, the event beside the change.

use crate::{
    auth::policy::{Decision, Resource, may, not_found},
    call::Call,
    events::{Event, Kind, Origin},
    fault::Fault,
    store::{StoreError, Tx, events},
};
use serde_json::Value;
use shared::{
    api::{DEFAULT_PAGE_LIMIT, PageLimit, access::Action},
    problem::{Code, Problem},
};

/// The thing, if it is there and the decision allows the action; `what` names it for people ("pool gpu-a").
///
/// # Errors
/// NOT_FOUND if it is absent or hidden, else PERMISSION_DENIED: in this order.
pub(super) fn permitted<T>(
    found: Option<T>,
    decision: Decision,
    action: Action,
    what: &str,
) -> Result<T, Problem> {
    let found = found.ok_or_else(|| not_found(what))?;
    decision.require(action, what)?;
    Ok(found)
}

/// That the caller may do this to the whole installation.
///
/// # Errors
/// PERMISSION_DENIED.
pub(super) fn on_platform(call: &Call, action: Action) -> Result<(), Fault> {
    let decision = may(&call.principal()?.powers, action, Resource::Platform);
    Ok(decision.require(action, "this installation")?)
}

/// How many things a page holds.
pub(super) fn page_size(limit: Option<PageLimit>) -> i64 {
    limit.map_or(DEFAULT_PAGE_LIMIT, PageLimit::get)
}

/// Cuts what was read (one more than the page holds, if there is more) to the page and its cursor.
pub(super) fn page<T, C>(mut read: Vec<T>, size: i64, id: impl Fn(&T) -> C) -> (Vec<T>, Option<C>) {
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let more = read.len() > size;
    read.truncate(size);
    let cursor = read.last().filter(|_| more).map(id);
    (read, cursor)
}

/// INVALID_STATE: the state, and which moves it allows.
pub(super) fn invalid_state(detail: impl Into<String>) -> Fault {
    Problem::new(Code::InvalidState, detail).into()
}

/// CONFLICT.
pub(super) fn conflict(detail: impl Into<String>) -> Fault {
    Problem::new(Code::Conflict, detail).into()
}

/// What happened to whom.
pub(super) struct News<'a> {
    /// What.
    pub(super) kind: Kind,
    /// To whom it is told.
    pub(super) tenant: &'a str,
    /// The id of the thing that it happened to.
    pub(super) subject: &'a str,
}

/// Writes the event of a change into the change's transaction.
pub(super) async fn announce(
    tx: &mut Tx<'_>,
    call: &Call,
    news: News<'_>,
    data: Value,
) -> Result<(), StoreError> {
    let origin = Origin { actor: call.actor(), request_id: call.request_id.clone(), at: call.now };
    let event = Event { kind: news.kind, tenant: news.tenant, subject: news.subject, data };
    events::insert(tx, &call.relay.random, &origin, &event).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_cursor_only_where_more_follows() {
        for (read, size, kept, cursor) in
            [(0, 2, 0, None), (1, 2, 1, None), (2, 2, 2, None), (3, 2, 2, Some(1)), (2, 1, 1, Some(0))]
        {
            let (page, next) = page((0..read).collect::<Vec<i32>>(), size, |item| *item);
            assert_eq!((page.len(), next), (kept, cursor), "{read} read for a page of {size}");
        }
    }

    #[test]
    fn what_is_absent_is_hidden_before_it_is_forbidden() {
        let code = |found: Option<()>, decision| {
            permitted(found, decision, Action::PoolsRead, "pool p").map_err(|problem| problem.code)
        };
        assert_eq!(code(None, Decision::Deny), Err(Code::NotFound));
        assert_eq!(code(None, Decision::Allow), Err(Code::NotFound));
        assert_eq!(code(Some(()), Decision::Hidden), Err(Code::NotFound));
        assert_eq!(code(Some(()), Decision::Deny), Err(Code::PermissionDenied));
        assert_eq!(code(Some(()), Decision::Allow), Ok(()));
        let absent = permitted(None::<()>, Decision::Deny, Action::PoolsRead, "pool p");
        assert_eq!(absent, permitted(Some(()), Decision::Hidden, Action::PoolsRead, "pool p"));
    }
}
