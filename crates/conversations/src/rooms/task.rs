//! Follows a room that is in use at this instance: its log, and the runs of its members. Everything that
//! happens goes through the machine; this does what the machine decides.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, SelectAll};
use parking_lot::Mutex;
use serde_json::{Value, json};
use throughline_canonical::{Event, Reply};
use throughline_gateway::thinking::store::StoreError;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::Rooms;
use super::event::{EventType, Frame, RoomEvent, StoredEvent, name_of_step};
use super::feed::Feed;
use super::hooks::{Gate, HookCall, HookConfig, Trigger, Verdict, answer_data, calls_at_end};
use super::machine::{Effect, Input, Message, Room, Step};
use crate::bus::hub::Listener;
use crate::bus::{News, Topic};
use crate::projects::Caller;
use crate::projects::content::{NodeContent, NodeView};
use crate::projects::history::content as opened_content;
use crate::projects::problem::Problem;
use crate::projects::room_turn::{RoomHome, RoomRun, RoomTurn, RunInRoom, message_of};
use crate::runs::log::Entry;
use crate::store::{Node, RoomEntry, RoomNews, Run, RunStatus, project_scope};

/// The pause before the store is asked again, after it failed.
const RETRY: Duration = Duration::from_millis(300);
/// How long a room without readers and runs stays in memory.
const IDLE: Duration = Duration::from_secs(20);
/// Messages that wait for the task. Callers wait when there are more.
const MAX_COMMANDS: usize = 64;
/// Entries that are read at a time.
const LOG_PAGE: usize = 200;
/// The newest runs of a project among which those of a room are searched.
const MAX_RECENT_RUNS: usize = 64;

/// Work for the task of a room.
pub(super) enum Command {
    /// A person said something.
    Message {
        message: Message,
        caller: Box<Caller>,
        /// Gets the runs that answer.
        started: oneshot::Sender<Vec<String>>,
    },
}

/// A room that is in use.
#[derive(Debug)]
pub(super) struct LiveRoom {
    pub(super) feed: Feed,
    commands: mpsc::Sender<Command>,
    changed: Notify,
    /// The newest news from other instances that the task has been woken for.
    news: Mutex<Option<RoomNews>>,
    /// With the newest key of a sealed project that a caller has presented.
    home: Mutex<RoomHome>,
}

impl LiveRoom {
    pub(super) async fn send(&self, command: Command) {
        // The task ends only when the room is not in use.
        let _ = self.commands.send(command).await;
    }

    pub(super) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Wakes the task if something is new.
    pub(super) fn hear(&self, news: RoomNews) {
        let mut known = self.news.lock();
        if known.as_ref() != Some(&news) {
            *known = Some(news);
            self.wake();
        }
    }

    /// Has the task woken again, because it could not read what is new.
    fn forget_news(&self) {
        *self.news.lock() = None;
    }

    /// Uses the key that a caller presents from now on.
    pub(super) fn renew(&self, home: &RoomHome) {
        if home.seal.is_clients() {
            *self.home.lock() = home.clone();
        }
    }

    fn home(&self) -> RoomHome {
        self.home.lock().clone()
    }

    /// Ends all readers.
    pub(super) fn close(&self) {
        self.feed.close();
        self.wake();
    }
}

/// Starts the task of a room. `last` is the number of the last entry of its log.
pub(super) fn spawn(rooms: &Arc<Rooms>, home: &RoomHome, last: u64) -> Arc<LiveRoom> {
    let (commands, inbox) = mpsc::channel(MAX_COMMANDS);
    let live = Arc::new(LiveRoom {
        feed: Feed::new(last),
        commands,
        changed: Notify::new(),
        news: Mutex::default(),
        home: Mutex::new(home.clone()),
    });
    let task = Task {
        rooms: rooms.clone(),
        id: home.room.clone(),
        live: live.clone(),
        machine: Room::new(rooms.settings.max_chain),
        last,
        entries: VecDeque::new(),
        retry_at: None,
        runs: HashMap::new(),
        events: SelectAll::new(),
        listener: rooms.runs.bus.listen(Topic::Room(home.room.clone())),
    };
    tokio::spawn(task.run(inbox));
    live
}

/// A run that is followed.
struct Followed {
    of: RunInRoom,
    /// Who asked, if this instance writes the run.
    caller: Option<Box<Caller>>,
    /// The hooks of the room when the run began.
    hooks: Arc<[HookConfig]>,
}

type RunEvents = BoxStream<'static, (String, Option<Entry>)>;

struct Task {
    rooms: Arc<Rooms>,
    id: String,
    live: Arc<LiveRoom>,
    machine: Room,
    /// The number of the last entry that was read.
    last: u64,
    /// Entries that readers have not seen: they wait for the end of a run, or for the store.
    entries: VecDeque<(RoomEntry, StoredEvent)>,
    /// When entries are shown again that could not be read.
    retry_at: Option<Instant>,
    runs: HashMap<String, Followed>,
    events: SelectAll<RunEvents>,
    /// Hears what other instances change.
    listener: Listener,
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::Receiver<Command>) {
        let mut idle_since = Instant::now();
        // Answers that another instance writes, or that were being written when a reader came.
        self.look().await;
        loop {
            if !self.runs.is_empty() || self.live.feed.readers() > 0 {
                idle_since = Instant::now();
            } else if idle_since.elapsed() >= IDLE {
                if self.leave() {
                    return;
                }
                idle_since = Instant::now();
            }
            tokio::select! {
                biased;
                Some(command) = inbox.recv() => self.take(command).await,
                Some((run, entry)) = self.events.next(), if !self.events.is_empty() => {
                    self.follow_on(&run, entry).await;
                }
                () = self.live.changed.notified() => self.look().await,
                news = self.listener.next() => self.hear(&news).await,
                () = sleep_until(self.retry_at.unwrap_or(idle_since)), if self.retry_at.is_some() => {
                    self.retry_at = None;
                    self.look_at_log().await;
                }
                () = sleep_until(idle_since + IDLE), if self.runs.is_empty() => {}
            }
        }
    }

    /// Looks for what another instance has changed.
    async fn hear(&mut self, news: &News) {
        if !matches!(news, News::Changed { instance } if **instance == *self.rooms.runs.instance) {
            self.look().await;
        }
    }

    /// Forgets the room, if it is not in use elsewhere.
    fn leave(&self) -> bool {
        let mut rooms = self.rooms.live.lock();
        // One is in the list, and one is here.
        let is_unused = Arc::strong_count(&self.live) <= 2;
        if is_unused {
            let is_own = rooms.get(&self.id).is_some_and(|live| Arc::ptr_eq(live, &self.live));
            if is_own {
                rooms.remove(&self.id);
            }
            self.live.feed.close();
        }
        is_unused
    }

    async fn take(&mut self, command: Command) {
        let Command::Message { message, caller, started } = command;
        let mut runs = Vec::new();
        self.rooms.tell(&self.id);
        // Readers see the message before the answers to it.
        self.look_at_log().await;
        self.refresh_members().await;
        let effects = self.machine.apply(Input::Message(message));
        self.perform(effects, Some(&caller), &mut runs).await;
        let _ = started.send(runs);
        self.look().await;
    }

    async fn content(&mut self) -> Result<(crate::store::Room, super::room::RoomContent), Problem> {
        let room = self.rooms.sealed_store.store.room(&self.id).await?;
        let room = room.ok_or_else(|| Problem::not_found("room", &self.id))?;
        let content = self.rooms.content(&room)?;
        Ok((room, content))
    }

    async fn refresh_members(&mut self) {
        match self.content().await {
            Ok((_, content)) => {
                self.machine.apply(Input::Members(content.members()));
            }
            Err(problem) => {
                tracing::warn!(
                    room = self.id,
                    error = problem.fault().message,
                    "cannot read a room"
                );
            }
        }
    }

    /// Does what the machine has decided. `caller` is the one whose message or run led to it.
    async fn perform(
        &mut self,
        effects: Vec<Effect>,
        caller: Option<&Caller>,
        started: &mut Vec<String>,
    ) {
        for effect in effects {
            match effect {
                Effect::Answer { member, chain } => {
                    let started_run = match caller {
                        Some(caller) => self.ask(caller, &member, chain).await,
                        // Another instance asks it.
                        None => Ok(None),
                    };
                    match started_run {
                        Ok(Some(run)) => started.push(run),
                        Ok(None) => {
                            self.machine.apply(Input::NotBegun { member });
                        }
                        Err(problem) => {
                            let message = problem.fault().message.clone();
                            let event =
                                StoredEvent::error("not_started", &message, Some(&member), None);
                            self.machine.apply(Input::NotBegun { member });
                            self.record(crate::projects::ids::new_id("error"), event).await;
                        }
                    }
                }
                Effect::Guard { member, chain } => {
                    if caller.is_some() {
                        self.record_guard(&member, chain).await;
                    }
                }
                Effect::Show { run, member, what } => {
                    self.live.feed.show(&self.id, &run, &member, &what);
                }
                Effect::Record { run, member, step } => {
                    self.record_step(&run, &member, &step).await;
                }
            }
        }
    }

    async fn record_guard(&mut self, member: &str, chain: u32) {
        let message = format!(
            "`{member}` was not asked: {chain} answers of models have followed each other. A message \
             of a person starts anew"
        );
        let event = StoredEvent::error("loop_guard", &message, Some(member), None);
        self.record(crate::projects::ids::new_id("guard"), event).await;
    }

    /// Records a step of a run that this instance writes, and tells the hooks.
    async fn record_step(&mut self, run: &str, member: &str, step: &Step) {
        if self.runs.get(run).is_none_or(|followed| followed.caller.is_none()) {
            return;
        }
        self.record(name_of_step(step, run), StoredEvent::step(step, member, run)).await;
    }

    /// Adds an event to the log. A failure ends up in the log of the server.
    async fn record(&mut self, name: String, event: StoredEvent) {
        let home = self.live.home();
        if let Err(problem) = self.rooms.projects.record(&home, name, &event).await {
            let error = &problem.fault().message;
            tracing::error!(room = self.id, error, "cannot record an event of a room");
            return;
        }
        self.rooms.tell(&self.id);
        if event.r#type == EventType::Error {
            self.notify_error(&home, &event).await;
        }
        self.look_at_log().await;
    }

    async fn notify_error(&mut self, home: &RoomHome, event: &StoredEvent) {
        let Ok((_, content)) = self.content().await else { return };
        let mut data = event.data.clone();
        data["room"] = json!(self.id);
        data["channel"] = json!(event.channel);
        data["run"] = json!(event.run);
        let call = HookCall { trigger: Trigger::OnError, data };
        self.rooms.hooks.notify(home, &content.hooks, call).await;
    }

    /// Asks a member for an answer. Returns its run.
    async fn ask(
        &mut self,
        caller: &Caller,
        member: &str,
        chain: u32,
    ) -> Result<Option<String>, Problem> {
        let (room, content) = self.content().await?;
        let Some(binding) = content.binding(member) else {
            return Ok(None);
        };
        let lock = self.rooms.member_lock(&room, binding).await?;
        let (settings, system) = self.rooms.member_settings(binding).await?;
        let home = self.live.home();
        let hooks: Arc<[HookConfig]> = content.hooks.into();
        let gate = RoomGate {
            rooms: self.rooms.clone(),
            home: home.clone(),
            channel: member.to_owned(),
            hooks: hooks.clone(),
        };
        let run = RoomRun { room: room.id, channel: member.to_owned(), chain, system };
        let turn = RoomTurn { run: Some(run), lock: Some(lock), gate: Some(Arc::new(gate)) };
        let started = self.rooms.projects.answer_in_room(caller, &home, settings, turn).await?;
        self.rooms.tell(&self.id);
        let run = self.rooms.sealed_store.store.run(&started.run_id).await?;
        if let Some(run) = run {
            self.follow(&run, Some(caller), hooks).await;
        }
        Ok(Some(started.run_id))
    }

    /// Follows a run of the room.
    async fn follow(&mut self, run: &Run, caller: Option<&Caller>, hooks: Arc<[HookConfig]>) {
        if self.runs.contains_key(&run.id) {
            return;
        }
        let Some(of) = self.rooms.projects.run_in_room(run) else { return };
        let member = of.room.channel.clone();
        let seal = self.live.home().seal;
        let (id, ended) = (run.id.clone(), run.id.clone());
        let entries = self.rooms.runs.follow(&run.id, None, Some(seal));
        // An entry that cannot be read is left out here. Readers of the run see the error.
        let entries = entries.filter_map(|entry| std::future::ready(entry.ok()));
        let events = entries
            .map(move |entry| (id.clone(), Some(entry)))
            .chain(futures_util::stream::once(async move { (ended, None) }));
        self.events.push(events.boxed());
        let caller = caller.map(|caller| Box::new(caller.clone()));
        self.runs.insert(run.id.clone(), Followed { of, caller, hooks });
        let effects = self.machine.apply(Input::Began { run: run.id.clone(), member });
        self.show(effects);
    }

    /// Shows effects that need nothing else.
    fn show(&self, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::Show { run, member, what } = effect {
                self.live.feed.show(&self.id, &run, &member, &what);
            }
        }
    }

    /// Takes the next entry of a run, or its end.
    async fn follow_on(&mut self, run: &str, entry: Option<Entry>) {
        let Some(entry) = entry else {
            return self.end(run).await;
        };
        // Entries of a newer version are left out.
        let Ok(event) = serde_json::from_str::<Event<'_>>(&entry.text) else { return };
        let effects = self.machine.apply(Input::Event { run, event: &event });
        self.perform(effects, None, &mut Vec::new()).await;
    }

    /// A run has ended, and its answer is stored.
    async fn end(&mut self, run: &str) {
        let Some(followed) = self.runs.remove(run) else { return };
        let home = self.live.home();
        let projects = self.rooms.projects.clone();
        let stored = projects.room_node(&home, &followed.of.node).await.unwrap_or_else(|problem| {
            let error = &problem.fault().message;
            tracing::error!(room = self.id, run, error, "cannot read the answer of a member");
            None
        });
        let (mut answer, mut unread) = (None, Vec::new());
        if followed.caller.is_some() {
            self.refresh_members().await;
            answer = stored.as_ref().map(|(node, content)| message_of(node, content));
            unread = self.unread(&home, &followed.of).await;
        }
        let effects = self.machine.apply(Input::Ended { run: run.to_owned(), answer, unread });
        if followed.caller.is_some() {
            self.notify_end(&home, run, &followed, stored.as_ref()).await;
        }
        let is_shown = |effect: &Effect| matches!(effect, Effect::Show { .. });
        let (shown, decided) = effects.into_iter().partition(is_shown);
        self.show(shown);
        self.look_at_log().await;
        self.perform(decided, followed.caller.as_deref(), &mut Vec::new()).await;
    }

    /// What was said while a member answered.
    async fn unread(&mut self, home: &RoomHome, of: &RunInRoom) -> Vec<Message> {
        self.rooms.projects.unread(home, of).await.unwrap_or_else(|problem| {
            let error = &problem.fault().message;
            tracing::error!(room = self.id, error, "cannot read what was said meanwhile");
            Vec::new()
        })
    }

    /// Notifies the hooks what a member has thought and said.
    async fn notify_end(
        &mut self,
        home: &RoomHome,
        run: &str,
        followed: &Followed,
        stored: Option<&(Node, NodeContent)>,
    ) {
        let Some((node, content)) = stored else { return };
        for (trigger, mut data) in calls_at_end(node, content) {
            data["room"] = json!(self.id);
            data["channel"] = json!(followed.of.room.channel);
            data["run"] = json!(run);
            self.rooms.hooks.notify(home, &followed.hooks, HookCall { trigger, data }).await;
        }
    }

    /// Looks for what others have written: entries of the log, and runs.
    async fn look(&mut self) {
        self.look_for_runs().await;
        self.look_at_log().await;
    }

    async fn look_for_runs(&mut self) {
        let project = self.live.home().project;
        let scope = project_scope(&project.id);
        let store = self.rooms.sealed_store.store.clone();
        let Ok(runs) = store.runs(&project.owner, &scope, MAX_RECENT_RUNS).await else {
            return self.live.forget_news();
        };
        for run in runs.iter().filter(|run| run.status == RunStatus::Running) {
            let is_here =
                self.rooms.projects.run_in_room(run).is_some_and(|of| of.room.room == self.id);
            if is_here {
                self.follow(run, None, Arc::from([])).await;
            }
        }
    }

    /// Reads new entries of the log, and shows them.
    async fn look_at_log(&mut self) {
        let store = self.rooms.sealed_store.store.clone();
        let home = self.live.home();
        loop {
            let page = match store.room_log(&self.id, self.last, LOG_PAGE).await {
                Ok(page) => page,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(room = self.id, error, "cannot read the log of a room");
                    return self.live.forget_news();
                }
            };
            let is_last = page.len() < LOG_PAGE;
            for entry in page {
                self.last = entry.number;
                match home.open(&entry) {
                    Ok(event) => self.entries.push_back((entry, event)),
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::error!(room = self.id, error, "cannot open an event of a room");
                    }
                }
            }
            if is_last {
                break;
            }
        }
        self.show_entries(&home).await;
    }

    /// Shows entries, in order. An answer is shown after everything that its run has shown.
    async fn show_entries(&mut self, home: &RoomHome) {
        while let Some((_, event)) = self.entries.front() {
            let is_open = |run: &String| self.runs.contains_key(run);
            if event.r#type == EventType::Message && event.run.as_ref().is_some_and(is_open) {
                return;
            }
            let Some((entry, event)) = self.entries.pop_front() else { return };
            match self.rooms.shown_event(home, entry.number, event.clone()).await {
                Ok(shown) => self.live.feed.push(Frame::new(&shown)),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(room = self.id, error, "cannot read a message of a room");
                    self.entries.push_front((entry, event));
                    self.retry_at = Some(Instant::now() + RETRY);
                    return;
                }
            }
        }
    }
}

impl Rooms {
    /// A stored event as readers get it: a message with its node.
    pub(super) async fn shown_event(
        &self,
        home: &RoomHome,
        number: u64,
        event: StoredEvent,
    ) -> Result<RoomEvent, StoreError> {
        let data = match event.node() {
            Some(node) => self.shown_message(home, node).await?,
            None => event.data,
        };
        Ok(RoomEvent {
            seq: Some(number),
            r#type: event.r#type,
            room: home.room.clone(),
            channel: event.channel,
            run: event.run,
            data,
        })
    }

    async fn shown_message(&self, home: &RoomHome, id: &str) -> Result<Value, StoreError> {
        let Some(node) = self.sealed_store.store.node(id).await? else {
            return Ok(json!({ "id": id }));
        };
        Ok(match opened_content(&home.seal, &node) {
            Ok(content) => json!(NodeView::new(&node, Some(content), &home.branch)),
            Err(problem) => json!({"id": id, "error": problem.fault().message}),
        })
    }
}

/// Asks the hooks of a room about an answer.
#[derive(Debug)]
struct RoomGate {
    rooms: Arc<Rooms>,
    home: RoomHome,
    channel: String,
    hooks: Arc<[HookConfig]>,
}

impl RoomGate {
    async fn ask(&self, trigger: Trigger, mut data: Value) -> Verdict {
        data["room"] = json!(self.home.room);
        data["channel"] = json!(self.channel);
        self.rooms.hooks.ask(&self.home, &self.hooks, HookCall { trigger, data }).await
    }
}

impl Gate for RoomGate {
    fn before_broadcast<'a>(&'a self, reply: &'a Reply) -> BoxFuture<'a, Verdict> {
        Box::pin(self.ask(Trigger::BeforeBroadcast, answer_data(reply)))
    }

    fn decides_about_answers(&self) -> bool {
        self.rooms.hooks.decides(&self.hooks, Trigger::BeforeBroadcast)
    }

    fn on_tool_call<'a>(&'a self, call: Value) -> BoxFuture<'a, Verdict> {
        Box::pin(self.ask(Trigger::OnToolCall, call))
    }
}
