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
use crate::bus::{News, Topic};
use crate::projects::Projects;
use crate::projects::problem::Problem;
use crate::projects::room_turn::RoomHome;
use crate::runs::Runs;
use crate::sealed_store::SealedStore;

/// How often a shared store is asked for what other instances have written, while no bus tells it.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How often it is asked while a bus does: the bus may have lost the last news.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

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

    /// Repeats calls of webhooks, and follows what other instances write, for ever.
    pub async fn run(self: Arc<Self>) {
        let deliveries = self.hooks.deliveries.clone();
        tokio::join!(deliveries.run(), self.watch_others());
    }

    /// Asks a shared store what is new in all rooms that are in use here, with few statements.
    async fn watch_others(&self) {
        let store = &self.sealed_store.store;
        while store.is_shared() {
            let is_live = self.runs.bus.health().is_live();
            sleep(if is_live { CHECK_INTERVAL } else { LOOK_INTERVAL }).await;
            let rooms: Vec<String> = self.live.lock().keys().cloned().collect();
            if rooms.is_empty() {
                continue;
            }
            match store.room_news(&rooms).await {
                Ok(news) => {
                    let live = self.live.lock();
                    for news in news {
                        if let Some(room) = live.get(&news.room) {
                            room.hear(news);
                        }
                    }
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(error, "cannot read what is new in rooms");
                }
            }
        }
    }

    /// The room in use, with a task that follows it.
    async fn live(self: &Arc<Self>, home: &RoomHome) -> Result<Arc<LiveRoom>, Problem> {
        if let Some(live) = self.live.lock().get(&home.room) {
            live.renew(home);
            return Ok(live.clone());
        }
        let last = self.sealed_store.store.last_entry(&home.room).await?;
        let mut rooms = self.live.lock();
        // Another request may have been faster.
        if let Some(live) = rooms.get(&home.room) {
            return Ok(live.clone());
        }
        let live = task::spawn(self, home, last);
        rooms.insert(home.room.clone(), live.clone());
        Ok(live)
    }

    /// Tells other instances that a room has changed.
    fn tell(&self, room: &str) {
        let instance = self.runs.instance.as_str().into();
        self.runs.bus.publish(&Topic::Room(room.to_owned()), News::Changed { instance });
    }

    /// Tells the task of a room that something has changed.
    fn wake(&self, room: &str) {
        if let Some(live) = self.live.lock().get(room) {
            live.wake();
        }
    }
}
