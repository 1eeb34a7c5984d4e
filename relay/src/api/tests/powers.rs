//! Nobody gets more by any sequence: random users, roles, tokens and changes, against a model of a few lines. Whatever
//! happened before, a call succeeds only if the token holds the action and its owner holds it, both now.

use super::*;
use shared::api::access::Action;
use std::collections::BTreeMap;

const USERS: [&str; 3] = ["ada", "bob", "eve"];
/// A tenant's and a project's; the first of a place is none.
const ROLES: [Option<TenantRole>; 5] = [
    None,
    Some(TenantRole::Guest),
    Some(TenantRole::Viewer),
    Some(TenantRole::Editor),
    Some(TenantRole::Owner),
];
/// Methods on acme's pool gpu-a, in its project ml, with the least role and the action.
const CALLS: [(&str, Action, TenantRole); 4] = [
    ("compute.pools.get", Action::PoolsRead, TenantRole::Viewer),
    ("compute.joinTokens.list", Action::JoinTokensRead, TenantRole::Viewer),
    ("compute.joinTokens.create", Action::JoinTokensCreate, TenantRole::Editor),
    ("compute.nodes.list", Action::NodesRead, TenantRole::Viewer),
];

/// What a user holds on the pool, and what a token holds of it.
#[derive(Clone, Debug)]
enum Held {
    Role(TenantRole),
    Actions(Vec<Action>),
}

struct Model {
    /// The roles in acme and in its project ml, by user.
    roles: BTreeMap<(&'static str, &'static str), TenantRole>,
    /// Owner, what it holds, id and bearer.
    tokens: Vec<(&'static str, Held, String, String)>,
}

impl Model {
    fn holds(&self, user: &'static str, least: TenantRole) -> bool {
        ["", "ml"].iter().any(|place| self.roles.get(&(user, place)).is_some_and(|role| *role >= least))
    }

    /// The model: the token holds it, and its owner.
    fn may(&self, token: usize, (_, action, least): (&str, Action, TenantRole)) -> bool {
        let (owner, held, ..) = &self.tokens[token];
        let by_token = match held {
            Held::Role(role) => *role >= least,
            Held::Actions(actions) => actions.contains(&action),
        };
        by_token && self.holds(owner, least)
    }
}

#[tokio::test]
async fn no_sequence_of_changes_gives_more_than_token_and_owner_hold() {
    at_a_desk(async |desk| {
        let mut logins = BTreeMap::new();
        for user in USERS {
            logins.insert(user, desk.login(user).await);
        }
        // So that no one of them is ever the last OWNER.
        desk.login("keeper").await;
        desk.member_of("acme", "keeper", "OWNER").await;
        let mut model = Model { roles: BTreeMap::new(), tokens: Vec::new() };
        let (mut allowed, mut refused, mut made, mut not_made) = (0, 0, 0, 0);
        for _ in 0..150 {
            let [dice, one, two, three] = desk.relay.random.bytes::<4>().map(usize::from);
            let user = USERS[one % 3];
            match dice % 4 {
                0 => {
                    let place = if two % 2 == 0 { "" } else { "ml" };
                    let role =
                        if place.is_empty() { ROLES[three % 5] } else { ROLES[[0, 2, 3, 4][three % 4]] };
                    give(&desk, &mut model, (user, place), role).await;
                }
                1 => {
                    if make(&desk, &mut model, (user, &logins[user]), (two, three)).await {
                        made += 1;
                    } else {
                        not_made += 1;
                    }
                }
                2 if !model.tokens.is_empty() => {
                    let (.., id, _) = model.tokens.swap_remove(two % model.tokens.len());
                    desk.good(&root(), "admin.tokens.revoke", json!({"tokenId": id})).await;
                }
                _ => {}
            }
            for at in 0..model.tokens.len() {
                let call = CALLS[three % CALLS.len()];
                let mut body = json!({"tenantId": "acme", "poolId": "gpu-a"});
                if call.0.ends_with("create") {
                    body["ttlSeconds"] = json!(600);
                }
                let may = desk.refusal(&model.tokens[at].3, call.0, body).await.is_none();
                assert_eq!(may, model.may(at, call), "{call:?} {:?} {:?}", model.tokens[at], model.roles);
                if may { allowed += 1 } else { refused += 1 }
            }
        }
        assert!(
            [allowed, refused, made, not_made].iter().all(|count| *count > 5),
            "{allowed} {refused} {made} {not_made}"
        );
    })
    .await;
}

/// Sets a role, from whatever it was.
async fn give(desk: &Desk, model: &mut Model, key: (&'static str, &'static str), role: Option<TenantRole>) {
    let (user, place) = key;
    let mut body = json!({"tenantId": "acme", "memberId": user});
    if !place.is_empty() {
        body["projectId"] = json!(place);
    }
    let had = model.roles.remove(&key);
    if let Some(role) = role {
        body["role"] = json!(role);
        model.roles.insert(key, role);
    }
    let method = match (had, role) {
        (None, None) => return,
        (None, Some(_)) => "iam.members.add",
        (Some(_), Some(_)) => "iam.members.update",
        (Some(_), None) => {
            if place.is_empty() {
                // Out of the tenant is out of its projects.
                model.roles.remove(&(user, "ml"));
            }
            "iam.members.remove"
        }
    };
    desk.good(&root(), method, body).await;
}

/// Tries to make a token: a role in the tenant, or some actions on the pool. It must be made if, and only if, the user
/// holds all of that.
async fn make(
    desk: &Desk,
    model: &mut Model,
    (user, login): (&'static str, &str),
    (two, three): (usize, usize),
) -> bool {
    let (rights, held, holds) = if two % 2 == 0 {
        let role = ROLES[2 + three % 3].unwrap();
        let in_tenant = model.roles.get(&(user, "")).is_some_and(|has| *has >= role);
        (json!({"tenantRoles": [{"tenantId": "acme", "role": role}]}), Held::Role(role), in_tenant)
    } else {
        let calls: Vec<_> = CALLS.iter().enumerate().filter(|(at, _)| three & (1 << at) != 0).collect();
        let Some(_) = calls.first() else { return false };
        let actions: Vec<Action> = calls.iter().map(|(_, call)| call.1).collect();
        let holds = calls.iter().all(|(_, call)| model.holds(user, call.2));
        let permission = json!({"subject": "compute-pool/gpu-a", "actions": actions});
        (json!({"permissions": [permission]}), Held::Actions(actions), holds)
    };
    let mut body = json!({"description": "d"});
    body.as_object_mut().unwrap().extend(rights.as_object().unwrap().clone());
    match desk.with(login, "iam.tokens.create", body).await {
        Ok(answer) => {
            assert!(holds, "{user} made {held:?} of {:?}", model.roles);
            let (id, bearer) = people::created(&answer);
            model.tokens.push((user, held, id, bearer));
            true
        }
        Err(problem) => {
            assert!(!holds && problem.code == Code::PermissionDenied, "{user} {held:?}: {problem}");
            false
        }
    }
}
