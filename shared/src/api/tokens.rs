//! iam/tokens: the caller's own bearer tokens. admin/tokens: everybody's.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, AdminRole, InfraRole, ProjectRole, Scope, TenantRole},
    subject::Subject,
};
use crate::{
    bounded::{IdempotencyKey, Int, Label, Name, TenantId, Text},
    id::TokenId,
    secret::Reveal,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Makes an API token.
pub const CREATE: Op<CreateToken, TokenCreated> = Op::mutation(
    "iam.tokens.create",
    Access::Own(Action::TokensCreate),
    Phase::V0_2,
    "Make an API token with some of what the caller may do; it is shown this once.",
);
/// Shows a token.
pub const GET: Op<GetToken, TokenAnswer> = Op::read(
    "iam.tokens.get",
    Access::Own(Action::TokensRead),
    Phase::V0_2,
    "Show one of the caller's tokens, without its secret.",
);
/// Lists tokens.
pub const LIST: Op<ListTokens, TokenList> = Op::read(
    "iam.tokens.list",
    Access::Own(Action::TokensRead),
    Phase::V0_2,
    "List the caller's tokens that have not ended.",
);
/// Changes a token.
pub const UPDATE: Op<UpdateToken, TokenAnswer> = Op::mutation(
    "iam.tokens.update",
    Access::Own(Action::TokensUpdate),
    Phase::V0_2,
    "Change what one of the caller's API tokens may do; it counts at its next request.",
);
/// Ends a token.
pub const REVOKE: Op<GetToken, TokenAnswer> = Op::mutation(
    "iam.tokens.revoke",
    Access::Own(Action::TokensRevoke),
    Phase::V0_2,
    "End one of the caller's tokens, from its next request on.",
);
/// Exchanges the token that the call is made with.
pub const REFRESH: Op<RefreshToken, TokenCreated> = Op::mutation(
    "iam.tokens.refresh",
    Access::Own(Action::TokensRefresh),
    Phase::V0_2,
    "Get a new token for the one that calls; the old one ends when the new one is first used.",
);
/// Makes an API token for somebody.
pub const ADMIN_CREATE: Op<CreateTokenFor, TokenCreated> = Op::mutation(
    "admin.tokens.create",
    Access::May(Action::AdminTokensCreate, Scope::Platform),
    Phase::V0_2,
    "Make an API token for a user or service, with some of what that subject may do.",
);
/// Shows anybody's token.
pub const ADMIN_GET: Op<GetToken, TokenAnswer> = Op::read(
    "admin.tokens.get",
    Access::May(Action::AdminTokensRead, Scope::Platform),
    Phase::V0_2,
    "Show any token, without its secret.",
);
/// Lists anybody's tokens.
pub const ADMIN_LIST: Op<ListTokensOf, TokenList> = Op::read(
    "admin.tokens.list",
    Access::May(Action::AdminTokensRead, Scope::Platform),
    Phase::V0_2,
    "List tokens that have not ended.",
);
/// Ends anybody's token.
pub const ADMIN_REVOKE: Op<GetToken, TokenAnswer> = Op::mutation(
    "admin.tokens.revoke",
    Access::May(Action::AdminTokensRevoke, Scope::Platform),
    Phase::V0_2,
    "End any token, from its next request on.",
);

/// How long a token lives unless told otherwise, in seconds (8 hours).
pub const DEFAULT_SECONDS: i64 = 8 * 3600;
/// How long an API token may live, in seconds: 10 minutes to 365 days.
pub type Lifetime = Int<600, 31_536_000>;

/// The rule of [`IdOrAll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdOrAllRule {}
impl crate::bounded::Rule for IdOrAllRule {
    const NAME: &'static str = "IdOrAll";
    const MAX_LENGTH: usize = 128;
    const PATTERN: &'static str = r"^(\*|[A-Za-z0-9._:-]{1,128})$";
    fn accepts(text: &str) -> bool {
        text == ALL || text.parse::<TenantId>().is_ok()
    }
}
/// An id, or `*` for all that the token's owner has.
pub type IdOrAll = Text<IdOrAllRule>;
/// Every id.
pub const ALL: &str = "*";

/// A role in a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TenantRoleOf {
    /// The tenant, or `*`.
    pub tenant_id: IdOrAll,
    /// The role.
    pub role: TenantRole,
}

/// A role in a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProjectRoleOf {
    /// The tenant, or `*`.
    pub tenant_id: IdOrAll,
    /// The project, or `*`.
    pub project_id: IdOrAll,
    /// The role.
    pub role: ProjectRole,
}

/// A service's role on a site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InfraRoleOf {
    /// The site, or `*`.
    pub site_id: IdOrAll,
    /// The role.
    pub role: InfraRole,
}

/// Single actions on a subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Permission {
    /// What they are about, such as `compute-pool/gpu-a`; `*` for all that the token's owner has.
    pub subject: Subject,
    /// The actions, such as `compute:join-tokens:create`.
    #[schemars(length(min = 1, max = 128))]
    pub actions: Vec<Action>,
}

/// What an API token may do: never more than its owner may at that moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rights {
    /// Roles in tenants.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tenant_roles: Vec<TenantRoleOf>,
    /// Roles in projects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub project_roles: Vec<ProjectRoleOf>,
    /// A role over all tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_role: Option<AdminRole>,
    /// Roles on sites.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub infra_roles: Vec<InfraRoleOf>,
    /// Single actions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub permissions: Vec<Permission>,
}

/// Names and values for people and programs to find a token by.
pub type Labels = BTreeMap<Name, Label>;

/// A token to make.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct CreateToken {
    /// What it is for.
    pub description: Label,
    /// How long it lives, 8 hours unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<Lifetime>,
    /// What it may do.
    #[serde(flatten)]
    pub rights: Rights,
    /// Names and values to find it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: Labels,
    /// Makes a retry the same request; it is answered without the token.
    pub idempotency_key: IdempotencyKey,
}

/// A token to make for somebody.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct CreateTokenFor {
    /// The user or service that it acts for.
    pub subject: TenantId,
    /// The token.
    #[serde(flatten)]
    pub token: CreateToken,
}

/// Which token.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetToken {
    /// The token.
    pub token_id: TokenId,
}

/// Which tokens to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListTokens {
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<TokenId>,
}

/// Whose tokens to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListTokensOf {
    /// The user or service; everybody's unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<TenantId>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<TokenId>,
}

/// What to change of an API token; what is left out stays. Where anything of what it may do is given, all of it is
/// replaced.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(deny_unknown_fields)]
pub struct UpdateToken {
    /// The token.
    pub token_id: TokenId,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<Label>,
    /// What it may do from now on.
    #[serde(flatten)]
    pub rights: Rights,
    /// Names and values to find it by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxProperties" = 32))]
    pub labels: Option<Labels>,
}

/// Exchanges the token that the call is made with.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefreshToken {}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TokenType {
    /// From a login: what its user may do at that moment.
    User,
    /// Made for a program: what it holds and its owner may do at that moment.
    Api,
}

/// A token. Its secret is nowhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Its id, the JWT's `jti`.
    pub id: TokenId,
    /// What it is.
    #[serde(rename = "type")]
    pub token_type: TokenType,
    /// Whom it acts for, the JWT's `sub`.
    pub subject: String,
    /// That subject's own tenant.
    pub tenant_id: String,
    /// What it is for.
    pub description: String,
    /// What it may do; empty for one from a login, but for the admin role that was asked for.
    #[serde(flatten)]
    pub rights: Rights,
    /// Names and values to find it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Who made it.
    pub created_by: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// When it was ended before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
}

/// One token.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenAnswer {
    /// What is known of it.
    pub token: Token,
}

/// A new token. A retry is answered without the bearer form.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenCreated {
    /// What is known of it.
    pub token: Token,
    /// The bearer form, this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reveal>,
}

/// A page of tokens.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenList {
    /// In order of id.
    pub tokens: Vec<Token>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<TokenId>,
}
