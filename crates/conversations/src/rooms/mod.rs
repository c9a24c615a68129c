//! Rooms: live conversations of people and models. A room uses a branch of a project: each message is a
//! node there.
//!
//! - [`machine`]: decides what happens next; `task`: does it, one task for each room that is in use;
//! - [`event`]: what happened; `feed`: what readers see of it, [`reader`]: one of them;
//! - [`channel`]: members that many rooms can have; [`room`]: rooms, with their members;
//! - `messages`: what people say; [`hooks`]: programs that learn what happens, and may decide.
//!
//! What an answer stores, and how it follows what others said meanwhile, is in
//! [`crate::projects`]. Several instances can serve one room: all of them follow its log and its runs, and
//! the one that writes a run does what follows from it.

pub mod channel;
pub mod event;
mod feed;
pub mod hooks;
pub mod machine;
mod messages;
pub mod reader;
pub mod room;
mod task;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::sleep;

pub use self::channel::{ChannelChange, ChannelList, ChannelView, NewChannel};
use self::hooks::deliveries::Deliveries;
use self::hooks::webhook::Webhooks;
pub use self::hooks::{HookSettings, Hooks};
pub use self::messages::{NewMessage, SaidMessage};
pub use self::room::{
    BindingView, Category, HookView, NewBinding, NewHook, NewRoom, RoomChange, RoomList, RoomView,
};
use self::task::LiveRoom;
use crate::projects::Projects;
use crate::projects::problem::Problem;
use crate::projects::room_turn::RoomHome;
use crate::runs::Runs;
use crate::sealed_store::SealedStore;

/// How often a shared store is asked for what other instances have written.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// How often the keys of sealed rooms are compared. Two looks fit into a second.
const KEY_INTERVAL: Duration = Duration::from_millis(400);

/// The settings of rooms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomSettings {
    /// How many answers of models may follow each other without a person in between.
    pub max_chain: u32,
    /// How webhooks are repeated.
    pub hooks: HookSettings,
}

impl Default for RoomSettings {
    fn default() -> Self {
        Self { max_chain: 4, hooks: HookSettings::default() }
    }
}

/// All rooms.
#[derive(Debug)]
pub struct Rooms {
    projects: Arc<Projects>,
    runs: Arc<Runs>,
    sealed_store: Arc<SealedStore>,
    settings: RoomSettings,
    /// The hooks of this process, and calls of webhooks.
    pub hooks: Hooks,
    /// The rooms that are in use here.
    live: Mutex<HashMap<String, Arc<LiveRoom>>>,
}

impl Rooms {
    /// The rooms of these projects.
    pub fn new(projects: Arc<Projects>, runs: Arc<Runs>, settings: RoomSettings) -> Self {
        let sealed_store = runs.sealed_store.clone();
        let webhooks = Arc::new(Webhooks::new(settings.hooks.allow_private));
        let deliveries = Deliveries::new(sealed_store.clone(), webhooks.clone(), settings.hooks);
        let hooks = Hooks::new(webhooks, Arc::new(deliveries));
        Self { projects, runs, sealed_store, settings, hooks, live: Mutex::default() }
    }

    /// Repeats calls of webhooks, and follows what others change, for ever.
    pub async fn run(self: Arc<Self>) {
        let deliveries = self.hooks.deliveries.clone();
        tokio::join!(deliveries.run(), self.watch_others(), self.watch_keys());
    }

    /// Asks a shared store what is new in all rooms that are in use here, with few statements.
    async fn watch_others(&self) {
        let store = &self.sealed_store.store;
        while store.is_shared() {
            sleep(LOOK_INTERVAL).await;
            let mut rooms: Vec<String> = self.live.lock().keys().cloned().collect();
            if rooms.is_empty() {
                continue;
            }
            match store.room_news(&rooms).await {
                Ok(news) => {
                    rooms.retain(|room| news.iter().all(|news| news.room != *room));
                    for news in news {
                        if let Some(room) = self.live.lock().get(&news.room) {
                            room.hear(news);
                        }
                    }
                    // Another instance has removed these.
                    rooms.iter().for_each(|room| self.close(room));
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "cannot read what is new in rooms");
                }
            }
        }
    }

    /// Ends the readers of sealed rooms whose key has changed, at whatever instance.
    async fn watch_keys(&self) {
        loop {
            sleep(KEY_INTERVAL).await;
            let used: Vec<(Arc<LiveRoom>, String, String)> = {
                let live = self.live.lock();
                let key = |room: &Arc<LiveRoom>| {
                    room.clients_key().map(|(project, check)| (room.clone(), project, check))
                };
                live.values().filter_map(key).collect()
            };
            if used.is_empty() {
                continue;
            }
            let projects: Vec<String> =
                used.iter().map(|(_, project, _)| project.clone()).collect();
            let checks = match self.sealed_store.store.key_checks(&projects).await {
                Ok(checks) => checks.into_iter().collect::<HashMap<_, _>>(),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "cannot read the keys of rooms");
                    continue;
                }
            };
            for (room, project, check) in used {
                let present = checks.get(&project).and_then(Option::as_ref);
                // Another task may have the room with its new key by now.
                if present != Some(&check) && room.clients_key() == Some((project, check)) {
                    self.forget(&room.id, &room);
                }
            }
        }
    }

    /// Ends the readers of a room here.
    fn close(&self, room: &str) {
        let live = self.live.lock().get(room).cloned();
        if let Some(live) = live {
            self.forget(room, &live);
        }
    }

    /// Ends the readers of a room that is in use. The next request for the room begins anew.
    fn forget(&self, room: &str, live: &Arc<LiveRoom>) {
        let mut rooms = self.live.lock();
        if rooms.get(room).is_some_and(|known| Arc::ptr_eq(known, live)) {
            rooms.remove(room);
        }
        live.close();
    }

    /// The room in use, with a task that follows it. A task has one key: what a later key opens never reaches
    /// the readers of an earlier one.
    async fn live(self: &Arc<Self>, home: &RoomHome) -> Result<Arc<LiveRoom>, Problem> {
        if let Some(live) = self.known(home) {
            return Ok(live);
        }
        let last = self.sealed_store.store.last_entry(&home.room).await?;
        let mut rooms = self.live.lock();
        // Another request may have been faster.
        if let Some(live) = rooms.get(&home.room).filter(|live| live.has_key_of(&home.seal)) {
            return Ok(live.clone());
        }
        let live = task::spawn(self, home, last);
        if let Some(earlier) = rooms.insert(home.room.clone(), live.clone()) {
            earlier.close();
        }
        Ok(live)
    }

    fn known(&self, home: &RoomHome) -> Option<Arc<LiveRoom>> {
        let rooms = self.live.lock();
        let live = rooms.get(&home.room).filter(|live| live.has_key_of(&home.seal))?;
        live.renew(home);
        Some(live.clone())
    }

    /// Tells the task of a room that something has changed.
    fn wake(&self, room: &str) {
        if let Some(live) = self.live.lock().get(room) {
            live.wake();
        }
    }
}
