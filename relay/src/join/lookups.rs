//! Looking nodes up for many requests with one statement.
//!
//! Every call of a machine asks for its node's row, and the round trip costs far more than the row. So whoever asks
//! while a statement is on its way waits for the next one, which answers all who wait by then. Nothing is kept: each
//! answer is read from the store after its question was asked, so a ban that was answered before is seen.

use crate::{
    facts::NodeFacts,
    store::{Store, StoreError, nodes},
};
use shared::id::NodeId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The most statements at a time.
const MOST_STATEMENTS: usize = 2;

/// Those who ask.
#[derive(Clone, Default)]
pub struct Lookups(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    /// One for each request that waits: bounded by the connections.
    waiting: Vec<Question>,
    statements: usize,
}

struct Question {
    node: NodeId,
    answer: oneshot::Sender<Result<Option<NodeFacts>, StoreError>>,
}

impl Lookups {
    /// The node as it is now, not locked; `None` if there is none.
    ///
    /// # Errors
    /// The store's.
    pub async fn find(&self, store: &Store, node: &NodeId) -> Result<Option<NodeFacts>, StoreError> {
        let (answer, found) = oneshot::channel();
        let idle = {
            let mut queue = self.queue();
            queue.waiting.push(Question { node: node.clone(), answer });
            let idle = queue.statements < MOST_STATEMENTS;
            queue.statements += usize::from(idle);
            idle
        };
        if idle {
            // A task of its own: who asked may go away, the others still wait.
            tokio::spawn(Turn { lookups: self.clone(), over: false }.answer_all(store.clone()));
        }
        // A turn that is gone has answered nobody; the next question starts another.
        found.await.unwrap_or(Err(StoreError::Race))
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One of the statements at a time, for as long as there are questions.
struct Turn {
    lookups: Lookups,
    over: bool,
}

impl Turn {
    async fn answer_all(mut self, store: Store) {
        while let Some(questions) = self.next() {
            let ids: Vec<NodeId> = questions.iter().map(|question| question.node.clone()).collect();
            let found = store.glance("node.lookup", ids, |tx, ids| Box::pin(nodes::find_all(tx, ids))).await;
            for Question { node, answer } in questions {
                let found = found.as_ref().map(|rows| rows.iter().find(|row| row.id == node).cloned());
                // Who is gone needs no answer.
                let _ = answer.send(found.map_err(Clone::clone));
            }
        }
    }

    /// The oldest questions. Where there are none the turn ends, under the same lock: who asks next starts another.
    fn next(&mut self) -> Option<Vec<Question>> {
        let mut queue = self.lookups.queue();
        let count = queue.waiting.len().min(nodes::MOST_AT_ONCE);
        if count == 0 {
            self.over = true;
            queue.statements -= 1;
            return None;
        }
        Some(queue.waiting.drain(..count).collect())
    }
}

impl Drop for Turn {
    /// A turn that was interrupted still makes room.
    fn drop(&mut self) {
        if !self.over {
            self.lookups.queue().statements -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        first_start::{self, Beginning},
        random::Random,
        seal::{KeyRing, MasterKey},
        store::{
            nodes::{Joined, NewNode},
            testing::on_both_migrated,
        },
    };
    use futures_util::future::join_all;
    use shared::{api::node::Trust, hardware::Identity, id::JoinTokenId, time::Timestamp};

    async fn admit(store: &Store, ids: impl Iterator<Item = &NodeId>) {
        let (random, now) = (Random::seeded(7), Timestamp::from_millis(1_767_323_045_678));
        let keys = KeyRing::new(MasterKey::from_bytes(random.bytes().into()), Vec::new());
        let trust_domain = "relay.test".parse().unwrap();
        let beginning = Beginning {
            trust_domain: &trust_domain,
            provider_tenant: "provider",
            authorities: &[],
            keys: &keys,
            random: &random,
            now,
        };
        first_start::ensure(store, &beginning).await.unwrap();
        for id in ids {
            let written = store.transact("admit", id, |tx, id| {
                Box::pin(async move {
                    let (pool_id, tenant_id, site_id) = ("default", "provider", "default");
                    let new = NewNode { pool_id, tenant_id, site_id, key_sha256: "k", serial: "01" };
                    let joined = Joined {
                        id,
                        trust: Trust::Platform,
                        hosted: None,
                        identity: &Identity::default(),
                        ek_sha256: None,
                        ek_manufacturer: None,
                        ek_vouched: false,
                        token: &JoinTokenId::derive(&[1; 32]),
                        remote_address: "192.0.2.7",
                        kubernetes_node_name: None,
                        agent_version: "0.1.0",
                        at: now,
                    };
                    nodes::insert(tx, new, &joined).await
                })
            });
            written.await.unwrap();
        }
    }

    #[tokio::test]
    async fn each_question_has_its_own_answer() {
        on_both_migrated(async |store| {
            let ids: Vec<NodeId> = (0..100).map(|seed| NodeId::derive(&[seed; 32])).collect();
            admit(&store, ids.iter().step_by(2)).await;
            let lookups = Lookups::default();
            let found = join_all(ids.iter().map(|id| lookups.find(&store, id))).await;
            for (at, (id, found)) in ids.iter().zip(found).enumerate() {
                let expected = (at % 2 == 0).then_some(id);
                assert_eq!(found.unwrap().map(|row| row.id).as_ref(), expected, "node {at}");
            }
            assert_eq!(lookups.queue().statements, 0, "every turn ended");
        })
        .await;
    }

    #[tokio::test]
    async fn what_the_store_refuses_everybody_hears() {
        on_both_migrated(async |store| {
            let lookups = Lookups::default();
            store.close().await;
            let id = NodeId::derive(&[1; 32]);
            for answer in join_all((0..40).map(|_| lookups.find(&store, &id))).await {
                assert!(matches!(answer, Err(StoreError::Unreachable(_))), "{answer:?}");
            }
        })
        .await;
    }
}
