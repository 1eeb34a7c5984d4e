//! admin/tasks: what the relay still has to do, or could not.

use super::steps::{invalid_state, on_platform, page, page_size};
use crate::{
    auth::policy::not_found,
    call::Call,
    fault::Fault,
    store::{Tx, tasks},
};
use shared::{
    api::{
        access::Action,
        tasks::{GetTask, ListQueues, ListTasks, QueueList, Task, TaskAnswer, TaskList, TaskState},
    },
    bounded::Name,
    id::TaskId,
};

/// admin/tasks/list.
///
/// # Errors
/// PERMISSION_DENIED.
pub async fn list(call: Call, input: ListTasks) -> Result<TaskList, Fault> {
    on_platform(&call, Action::AdminTasksRead)?;
    let size = page_size(input.limit);
    let read = call.relay.store.read(call.method, (&input, size), |tx, (input, size)| {
        Box::pin(async move {
            let queue = input.queue.as_ref().map_or("", Name::as_str);
            let after = input.cursor.as_ref().map_or("", TaskId::as_str);
            let newest_first = input.newest_first.unwrap_or(false);
            Ok::<_, Fault>(tasks::page(tx, queue, input.state, (after, newest_first), size + 1).await?)
        })
    });
    let (tasks, cursor) = page(read.await?, size, |task| task.id.clone());
    Ok(TaskList { tasks, cursor })
}

/// admin/tasks/get.
///
/// # Errors
/// PERMISSION_DENIED, NOT_FOUND.
pub async fn get(call: Call, input: GetTask) -> Result<TaskAnswer, Fault> {
    on_platform(&call, Action::AdminTasksRead)?;
    let read = call.relay.store.read(call.method, &input.task_id, |tx, id| {
        Box::pin(async move { Ok::<_, Fault>(tasks::find(tx, id).await?) })
    });
    Ok(TaskAnswer { task: found(read.await?, &input.task_id)? })
}

/// admin/tasks/retry.
///
/// # Errors
/// PERMISSION_DENIED, NOT_FOUND; INVALID_STATE for a task that neither failed nor is archived, is tried once only, or was asked
/// for again since.
pub async fn retry(call: Call, input: GetTask) -> Result<TaskAnswer, Fault> {
    on_platform(&call, Action::AdminTasksRetry)?;
    let store = &call.relay.store;
    store.transact(call.method, &input.task_id, |tx, id| Box::pin(bring_back(tx, id))).await
}

/// admin/tasks/delete.
///
/// # Errors
/// PERMISSION_DENIED, NOT_FOUND; INVALID_STATE while a worker is at it.
pub async fn delete(call: Call, input: GetTask) -> Result<TaskAnswer, Fault> {
    on_platform(&call, Action::AdminTasksDelete)?;
    let store = &call.relay.store;
    store
        .transact(call.method, &input.task_id, |tx, id| {
            Box::pin(async move {
                let task = found(tasks::lock(tx, id).await?, id)?;
                if task.state == TaskState::Active {
                    let end = task.due_at.map(|end| format!(" ({end})")).unwrap_or_default();
                    return Err(invalid_state(format!(
                        "A worker is at {id}; delete it when it has ended or failed, at the latest when its lease ends{end}: \
                         admin/tasks/get shows its state."
                    )));
                }
                tasks::remove(tx, id).await?;
                Ok(TaskAnswer { task })
            })
        })
        .await
}

/// admin/tasks/queues.
///
/// # Errors
/// PERMISSION_DENIED.
pub async fn queues(call: Call, _: ListQueues) -> Result<QueueList, Fault> {
    on_platform(&call, Action::AdminTasksRead)?;
    let read = call
        .relay
        .store
        .read(call.method, (), |tx, ()| Box::pin(async move { Ok::<_, Fault>(tasks::counts(tx).await?) }));
    Ok(QueueList { queues: read.await? })
}

fn found(task: Option<Task>, id: &TaskId) -> Result<Task, Fault> {
    Ok(task.ok_or_else(|| not_found(&format!("task {id}")))?)
}

async fn bring_back(tx: &mut Tx<'_>, id: &TaskId) -> Result<TaskAnswer, Fault> {
    let task = found(tasks::lock(tx, id).await?, id)?;
    if task.once {
        return Err(invalid_state(format!(
            "{id} is tried once only, as doing it twice may do harm; look what became of it, and ask for it anew."
        )));
    }
    if !matches!(task.state, TaskState::Archived | TaskState::Retry) {
        let state = task.state.as_str();
        return Err(invalid_state(format!(
            "{id} is {state}; only what is archived or in retry is brought back."
        )));
    }
    if let Some(successor) = tasks::successor(tx, id).await? {
        return Err(invalid_state(format!(
            "{id} was asked for again since, as {successor}, and one alone may be open; look at that one, and delete this."
        )));
    }
    let now = tx.database_time().await?;
    tasks::reopen(tx, id, now).await?;
    Ok(TaskAnswer { task: found(tasks::find(tx, id).await?, id)? })
}
