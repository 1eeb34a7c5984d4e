//! infra/components: programs that work for this installation say that they live. admin/components: which there are.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{Int, Label, Name},
    id::TokenId,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Says that a component lives.
pub const PING: Op<PingComponent, ComponentAnswer> = Op::mutation(
    "infra.components.ping",
    Access::May(Action::ComponentsPing, Scope::Platform),
    Phase::V0_2,
    "Say that a component lives, which version it is, and when it pings again.",
);
/// Lists components.
pub const LIST: Op<ListComponents, ComponentList> = Op::read(
    "admin.components.list",
    Access::May(Action::AdminComponentsRead, Scope::Platform),
    Phase::V0_2,
    "List the components that pinged within a day, with the token that each used.",
);
/// Shows a component.
pub const GET: Op<GetComponent, ComponentAnswer> = Op::read(
    "admin.components.get",
    Access::May(Action::AdminComponentsRead, Scope::Platform),
    Phase::V0_2,
    "Show a component that pinged within a day.",
);
/// Forgets a component.
pub const DELETE: Op<GetComponent, ComponentAnswer> = Op::mutation(
    "admin.components.delete",
    Access::May(Action::AdminComponentsDelete, Scope::Platform),
    Phase::V0_2,
    "Forget a component; it is back with its next ping, whoever sends it.",
);

/// The type of the relay itself; no other component can have it.
pub const RELAY: &str = "relay";
/// The type of the relay's own workers, which do its tasks; no other component can have it.
pub const RELAY_TASKS: &str = "relay-tasks";
/// How long a component may be silent before it is forgotten, in seconds (24 hours).
pub const SILENT_SECONDS: i64 = 86_400;

/// A component's sign of life.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PingComponent {
    /// What it is, such as `site-worker`.
    #[serde(rename = "type")]
    pub component_type: Name,
    /// Which one of its type it is; the same after a restart.
    pub identifier: Name,
    /// Its version.
    pub version: Label,
    /// When it started.
    pub started_at: Timestamp,
    /// How often it pings.
    pub interval_seconds: Int<1, 86_400>,
}

/// Which components to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListComponents {
    /// Those of this type alone.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub component_type: Option<Name>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<ComponentCursor>,
}

/// The rule of [`ComponentCursor`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ComponentCursorRule {}
impl crate::bounded::Rule for ComponentCursorRule {
    const NAME: &'static str = "ComponentCursor";
    const MAX_LENGTH: usize = 257;
    const PATTERN: &'static str = CURSOR_PATTERN;
    fn accepts(text: &str) -> bool {
        text.split_once('/')
            .is_some_and(|(kind, id)| kind.parse::<Name>().is_ok() && id.parse::<Name>().is_ok())
    }
}
/// The pattern of [`ComponentCursor`].
pub const CURSOR_PATTERN: &str = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}/[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$";
/// Where a page of components ended: its last one's type and identifier, joined by a slash.
pub type ComponentCursor = crate::bounded::Text<ComponentCursorRule>;

/// Which component.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetComponent {
    /// What it is.
    #[serde(rename = "type")]
    pub component_type: Name,
    /// Which one of its type it is.
    pub identifier: Name,
}

/// A component.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Component {
    /// What it is.
    #[serde(rename = "type")]
    pub component_type: String,
    /// Which one of its type it is.
    pub identifier: String,
    /// Its version.
    pub version: String,
    /// When it started, as it says.
    pub started_at: Timestamp,
    /// How often it pings, as it says.
    pub interval_seconds: i64,
    /// When it first pinged.
    pub created_at: Timestamp,
    /// When it last pinged.
    pub pinged_at: Timestamp,
    /// Whom its token acts for; `relay` for the relay itself.
    pub subject: String,
    /// The token that it pinged with; absent for the relay itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<TokenId>,
    /// When that token ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_expires_at: Option<Timestamp>,
}

/// One component.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentAnswer {
    /// The component.
    pub component: Component,
}

/// A page of components.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComponentList {
    /// In order of type and identifier.
    pub components: Vec<Component>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
