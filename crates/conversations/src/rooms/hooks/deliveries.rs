//! Calls of webhooks that no room waits for. They are stored before they are made, and repeated with
//! growing pauses. A call that fails too often is *dead*: it is kept, and can be replayed.
//!
//! Calls of a sealed project are sealed under the key of its owner, so only a process that has the key
//! repeats them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::unix_ms;
use tokio::sync::Notify;

use super::webhook::{Prepared, Webhooks, shown};
use super::{HookCall, HookConfig, HookSettings};
use crate::chat_seal::Field;
use crate::projects::problem::Problem;
use crate::projects::room_turn::RoomHome;
use crate::projects::unreadable::or_unreadable;
use crate::sealed_store::{SealedKind, SealedStore, expires};
use crate::store::{Delivery, Page};

/// How many calls are made at the same time.
const PARALLEL: usize = 16;
/// How long a call that was taken belongs to its process.
const HOLD: Duration = Duration::from_secs(120);
/// How often calls of other processes that died are looked for.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// How much longer each pause is.
const GROWTH: u64 = 4;
/// The longest pause.
const MAX_PAUSE_MS: u64 = 6 * 60 * 60 * 1_000;

/// Makes and repeats calls.
#[derive(Debug)]
pub struct Deliveries {
    sealed_store: Arc<SealedStore>,
    webhooks: Arc<Webhooks>,
    settings: HookSettings,
    new: Notify,
}

impl Deliveries {
    pub(crate) fn new(
        sealed_store: Arc<SealedStore>,
        webhooks: Arc<Webhooks>,
        settings: HookSettings,
    ) -> Self {
        Self { sealed_store, webhooks, settings, new: Notify::new() }
    }

    /// Makes a call some time soon.
    pub(super) async fn send(
        self: &Arc<Self>,
        home: &RoomHome,
        hook: &HookConfig,
        call: &HookCall,
    ) {
        self.enqueue(home, Prepared::new(hook, call)).await;
    }

    async fn enqueue(self: &Arc<Self>, home: &RoomHome, call: Prepared) {
        if home.seal.is_clients() {
            let (own, home) = (Arc::clone(self), home.clone());
            tokio::spawn(async move { own.repeat_in_memory(home, call).await });
            return;
        }
        let delivery = Delivery {
            id: call.id.clone(),
            room: home.room.clone(),
            attempts: 0,
            due: Some(unix_ms()),
            sealed: self.sealed_store.seal(SealedKind::Delivery, &call.id, &call),
        };
        match self.sealed_store.store.put_delivery(delivery).await {
            Ok(()) => self.new.notify_one(),
            Err(error) => tracing::error!(
                hook = call.hook,
                error = &error as &dyn std::error::Error,
                "cannot store the call of a hook; it is not made"
            ),
        }
    }

    /// Repeats a call of a sealed project. Only its end is stored, under the key of the project.
    async fn repeat_in_memory(&self, home: RoomHome, mut call: Prepared) {
        for attempt in 1..=self.settings.attempts {
            match self.webhooks.send(&call).await {
                Ok(_) => return,
                Err(error) => call.error = Some(error.to_string()),
            }
            if attempt < self.settings.attempts {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(self.pause(attempt))) => {}
                    () = home.seal.revoked() => break,
                }
            }
        }
        let dead = Delivery {
            id: call.id.clone(),
            room: home.room.clone(),
            attempts: self.settings.attempts,
            due: None,
            sealed: home.seal.seal_json(Field::Delivery, &call.id, &call),
        };
        if let Err(error) = self.sealed_store.store.put_delivery(dead).await {
            tracing::error!(
                hook = call.hook,
                error = &error as &dyn std::error::Error,
                "cannot store the failed call of a hook"
            );
        }
    }

    /// Makes calls that are due, for ever.
    pub async fn run(self: Arc<Self>) {
        loop {
            match self.make_due().await {
                Ok(0) => {}
                Ok(_) => continue,
                Err(error) => tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "cannot read the calls of hooks that are due"
                ),
            }
            let wait = LOOK_INTERVAL.min(self.settings.first_pause);
            let _ = tokio::time::timeout(wait, self.new.notified()).await;
        }
    }

    /// Makes the calls that are due now. Returns how many there were.
    async fn make_due(&self) -> Result<usize, StoreError> {
        let now = unix_ms();
        let due = self.sealed_store.store.take_due(now, expires(now, HOLD), PARALLEL).await?;
        let count = due.len();
        let calls = futures_util::stream::iter(due).map(|delivery| self.make(delivery));
        let results: Vec<Result<(), StoreError>> = calls.buffer_unordered(PARALLEL).collect().await;
        results.into_iter().collect::<Result<(), _>>()?;
        Ok(count)
    }

    async fn make(&self, delivery: Delivery) -> Result<(), StoreError> {
        let store = &self.sealed_store.store;
        let opened: Result<Prepared, _> =
            self.sealed_store.open(SealedKind::Delivery, &delivery.id, &delivery.sealed);
        let mut call = match opened {
            Ok(call) => call,
            Err(error) => {
                // It cannot be made, now or later.
                let dead = Delivery { due: None, ..delivery };
                store.put_delivery(dead).await?;
                return Err(error);
            }
        };
        let attempts = delivery.attempts + 1;
        let due = match self.webhooks.send(&call).await {
            Ok(_) => return store.remove_delivery(&delivery.id).await.map(drop),
            Err(error) => {
                let is_last = attempts >= self.settings.attempts;
                tracing::warn!(hook = call.hook, attempts, is_last, %error, "the call of a hook failed");
                call.error = Some(error.to_string());
                (!is_last).then(|| unix_ms() + self.pause(attempts))
            }
        };
        let sealed = self.sealed_store.seal(SealedKind::Delivery, &delivery.id, &call);
        store.put_delivery(Delivery { attempts, due, sealed, ..delivery }).await
    }

    /// The pause after this many attempts, in milliseconds.
    fn pause(&self, attempts: u64) -> u64 {
        let first = u64::try_from(self.settings.first_pause.as_millis()).unwrap_or(MAX_PAUSE_MS);
        let factor = GROWTH.saturating_pow(u32::try_from(attempts.saturating_sub(1)).unwrap_or(99));
        first.saturating_mul(factor).min(MAX_PAUSE_MS)
    }

    fn open(&self, home: &RoomHome, delivery: &Delivery) -> Result<Prepared, StoreError> {
        match home.seal.is_clients() {
            true => home.seal.open_json(Field::Delivery, &delivery.id, &delivery.sealed),
            false => self.sealed_store.open(SealedKind::Delivery, &delivery.id, &delivery.sealed),
        }
    }

    /// The dead calls of a room, oldest first.
    pub(in crate::rooms) async fn dead(
        &self,
        home: &RoomHome,
        page: Page,
    ) -> Result<Vec<Value>, Problem> {
        let dead = self.sealed_store.store.dead_deliveries(&home.room, page).await?;
        let show = |delivery: &Delivery| {
            let opened = self.open(home, delivery).map(Some).map_err(Problem::from);
            let (call, problem) = or_unreadable(opened)?;
            let damaged =
                || json!({"id": delivery.id, "attempts": delivery.attempts, "problem": problem});
            Ok::<_, Problem>(call.map_or_else(damaged, |call| shown(&call, delivery.attempts)))
        };
        dead.iter().map(show).collect()
    }

    /// Makes a dead call again, from the first attempt on. Its id stays.
    pub(in crate::rooms) async fn replay(
        self: &Arc<Self>,
        home: &RoomHome,
        id: &str,
    ) -> Result<(), Problem> {
        let store = &self.sealed_store.store;
        let delivery = store.delivery(id).await?;
        let is_dead = |one: &Delivery| one.room == home.room && one.due.is_none();
        let Some(delivery) = delivery.filter(is_dead) else {
            return Err(Problem::not_found("dead call", id));
        };
        let call = self.open(home, &delivery)?;
        if home.seal.is_clients() {
            store.remove_delivery(id).await?;
        }
        self.enqueue(home, call).await;
        Ok(())
    }
}
