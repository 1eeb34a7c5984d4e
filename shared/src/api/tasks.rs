//! admin/tasks: what the relay still has to do, or could not, outside of the call that asked for it.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{bounded::Name, id::TaskId, time::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Lists tasks.
pub const LIST: Op<ListTasks, TaskList> = Op::read(
    "admin.tasks.list",
    Access::May(Action::AdminTasksRead, Scope::Platform),
    Phase::V0_2,
    "List tasks, of one queue or in one state if told so.",
);
/// Shows a task.
pub const GET: Op<GetTask, TaskAnswer> = Op::read(
    "admin.tasks.get",
    Access::May(Action::AdminTasksRead, Scope::Platform),
    Phase::V0_2,
    "Show a task: its state, its attempts and its last error.",
);
/// Brings a task back.
pub const RETRY: Op<GetTask, TaskAnswer> = Op::mutation(
    "admin.tasks.retry",
    Access::May(Action::AdminTasksRetry, Scope::Platform),
    Phase::V0_2,
    "Bring an archived task back, or try one now that waits for its next attempt.",
);
/// Deletes a task.
pub const DELETE: Op<GetTask, TaskAnswer> = Op::mutation(
    "admin.tasks.delete",
    Access::May(Action::AdminTasksDelete, Scope::Platform),
    Phase::V0_2,
    "Delete a task that no worker is at; what it was to do is not done.",
);
/// Counts tasks.
pub const QUEUES: Op<ListQueues, QueueList> = Op::read(
    "admin.tasks.queues",
    Access::May(Action::AdminTasksRead, Scope::Platform),
    Phase::V0_2,
    "Count the tasks of each queue by state, with the oldest's age.",
);

/// What has become of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TaskState {
    /// It waits for a worker.
    Pending,
    /// A worker is at it, or died at it a moment ago.
    Active,
    /// An attempt failed; it waits for the next.
    Retry,
    /// It is done.
    Completed,
    /// It was given up.
    Archived,
}

impl TaskState {
    /// All states.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Active, Self::Retry, Self::Completed, Self::Archived];

    /// As the wire and the store say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Active => "active",
            Self::Retry => "retry",
            Self::Completed => "completed",
            Self::Archived => "archived",
        }
    }
}

/// Which tasks to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListTasks {
    /// Those of this queue alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Name>,
    /// Those in this state alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<TaskState>,
    /// Whether to begin with the newest; a page's cursor goes on in the same order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_first: Option<bool>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<TaskId>,
}

/// Which task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetTask {
    /// The task.
    pub task_id: TaskId,
}

/// Counts all queues.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListQueues {}

/// A task. What it is to be done with is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// Its queue.
    pub queue: String,
    /// What is to be done.
    #[serde(rename = "type")]
    pub task_type: String,
    /// What has become of it.
    pub state: TaskState,
    /// Whether it is tried once only, whatever comes of it.
    pub once: bool,
    /// How often it was tried; of a task that comes again, since it last succeeded.
    pub attempts: i64,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When it was asked for.
    pub created_at: Timestamp,
    /// When it is tried next; while it is active, when its worker has given up at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Timestamp>,
    /// When it ended; of a task that comes again, when it was last done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Timestamp>,
}

/// One task.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskAnswer {
    /// The task.
    pub task: Task,
}

/// A page of tasks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskList {
    /// In order of id, which is that of making, or the other way round.
    pub tasks: Vec<Task>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<TaskId>,
}

/// The tasks of a queue in a state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueCount {
    /// The queue.
    pub queue: String,
    /// The state.
    pub state: TaskState,
    /// How many there are.
    pub count: i64,
    /// When the oldest of them was asked for.
    pub oldest_created_at: Timestamp,
}

/// All queues that hold tasks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct QueueList {
    /// In order of queue and state.
    pub queues: Vec<QueueCount>,
}
