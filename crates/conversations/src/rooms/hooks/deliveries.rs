//! Calls of webhooks that no room waits for. They are stored before they are made, and repeated with
//! growing pauses. A call that fails too often is *dead*: it is kept, and can be replayed.
//!
//! Calls of a sealed project are sealed under the key of its owner, so only a process that has the key
//! repeats them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use throughline_gateway::thinking::store::StoreError;
use throughline_gateway::unix_ms;
use tokio::sync::{Notify, Semaphore};
use tokio::task::{Id, JoinSet};

use super::webhook::{Prepared, Webhooks, shown};
use super::{HookCall, HookConfig, HookSettings};
use crate::chat_seal::Field;
use crate::projects::problem::Problem;
use crate::projects::room_turn::RoomHome;
use crate::projects::unreadable::or_unreadable;
use crate::sealed_store::{SealedKind, SealedStore, expires};
use crate::store::{Delivery, Page};

/// How many calls are made at the same time.
const PARALLEL: usize = 64;
/// How many of them are of one room.
const PER_ROOM: usize = 8;
/// How long a call waits whose room has that many.
const TURN_PAUSE: Duration = Duration::from_millis(500);
/// How many calls of sealed projects wait or are made at the same time.
const MAX_IN_MEMORY: usize = 1_000;
/// Why a call of a sealed project is dead at once.
const FULL: &str = "too many calls of sealed projects wait; replay it later";
/// How long a call that was taken belongs to its process.
const HOLD: Duration = Duration::from_secs(120);
/// How often calls of other processes that died are looked for.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// How much longer each pause is.
const GROWTH: u64 = 4;
/// The longest pause.
const MAX_PAUSE_MS: u64 = 6 * 60 * 60 * 1_000;

/// The calls that are being made. Each one is a task of its own: a call that waits for the store must not
/// wait for the loop that begins calls, because the loop waits for the store too.
#[derive(Default)]
struct Calls {
    running: JoinSet<Result<(), StoreError>>,
    /// The room of each.
    rooms: HashMap<Id, String>,
}

impl Calls {
    fn of_room(&self, room: &str) -> usize {
        self.rooms.values().filter(|own| *own == room).count()
    }

    fn begin(
        &mut self,
        room: String,
        call: impl Future<Output = Result<(), StoreError>> + Send + 'static,
    ) {
        let task = self.running.spawn(call);
        self.rooms.insert(task.id(), room);
    }

    /// Waits for the end of a call.
    async fn ended(&mut self) -> Option<Result<(), StoreError>> {
        let (id, made) = match self.running.join_next_with_id().await? {
            Ok((id, made)) => (id, made),
            // A call that panicked is made again when its hold expires.
            Err(error) => (error.id(), Ok(())),
        };
        self.rooms.remove(&id);
        Some(made)
    }
}

fn log_failure(error: &StoreError) {
    let error = error as &dyn std::error::Error;
    tracing::error!(error, "cannot read or write the calls of hooks that are due");
}

/// Makes and repeats calls.
#[derive(Debug)]
pub struct Deliveries {
    sealed_store: Arc<SealedStore>,
    webhooks: Arc<Webhooks>,
    settings: HookSettings,
    new: Notify,
    /// Slots for calls of sealed projects.
    in_memory: Arc<Semaphore>,
}

impl Deliveries {
    pub(crate) fn new(
        sealed_store: Arc<SealedStore>,
        webhooks: Arc<Webhooks>,
        settings: HookSettings,
    ) -> Self {
        let in_memory = Arc::new(Semaphore::new(MAX_IN_MEMORY));
        Self { sealed_store, webhooks, settings, new: Notify::new(), in_memory }
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
            let Ok(slot) = self.in_memory.clone().try_acquire_owned() else {
                let call = Prepared { error: Some(FULL.to_owned()), ..call };
                return self.bury(home, &call, 0).await;
            };
            let (own, home) = (Arc::clone(self), home.clone());
            tokio::spawn(async move {
                own.repeat_in_memory(home, call).await;
                drop(slot);
            });
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
        self.bury(&home, &call, self.settings.attempts).await;
    }

    /// Stores a dead call of a sealed project.
    async fn bury(&self, home: &RoomHome, call: &Prepared, attempts: u64) {
        let dead = Delivery {
            id: call.id.clone(),
            room: home.room.clone(),
            attempts,
            due: None,
            sealed: home.seal.seal_json(Field::Delivery, &call.id, call),
        };
        if let Err(error) = self.sealed_store.store.put_delivery(dead).await {
            tracing::error!(
                hook = call.hook,
                error = &error as &dyn std::error::Error,
                "cannot store the failed call of a hook"
            );
        }
    }

    /// Makes calls that are due, for ever. A call that takes long delays no other one: each that ends makes
    /// room for the next, and one room has only a part of the calls.
    pub async fn run(self: Arc<Self>) {
        let mut calls = Calls::default();
        loop {
            if let Err(error) = self.begin_due(&mut calls).await {
                log_failure(&error);
            }
            let wait = LOOK_INTERVAL.min(self.settings.first_pause);
            tokio::select! {
                Some(made) = calls.ended(), if !calls.running.is_empty() => {
                    if let Err(error) = made {
                        log_failure(&error);
                    }
                }
                () = self.new.notified(), if calls.running.len() < PARALLEL => {}
                () = tokio::time::sleep(wait), if calls.running.len() < PARALLEL => {}
            }
        }
    }

    /// Begins the calls that are due now, as many as there is room for.
    async fn begin_due(self: &Arc<Self>, calls: &mut Calls) -> Result<(), StoreError> {
        let store = &self.sealed_store.store;
        loop {
            let free = PARALLEL - calls.running.len();
            let now = unix_ms();
            let due = match free {
                0 => return Ok(()),
                _ => store.take_due(now, expires(now, HOLD), free).await?,
            };
            let is_last = due.len() < free;
            for delivery in due {
                let room = delivery.room.clone();
                if calls.of_room(&room) >= PER_ROOM {
                    let later = Some(expires(now, TURN_PAUSE));
                    store.put_delivery(Delivery { due: later, ..delivery }).await?;
                    continue;
                }
                let own = Arc::clone(self);
                calls.begin(room, async move { own.make(delivery).await });
            }
            if is_last {
                return Ok(());
            }
        }
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
