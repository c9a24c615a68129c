//! The rooms of the store in RAM, with their channels, logs and calls of webhooks.

use std::collections::BTreeMap;

use throughline_gateway::thinking::store::StoreFuture;

use crate::in_memory::{InMemory, page, ready, replace};
use crate::store::{
    Changed, Channel, Delivery, Outcome, Page, Room, RoomEntry, RoomNews, RoomStore, project_scope,
};

/// Rooms, and what belongs to them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rooms {
    /// By owner and id.
    channels: BTreeMap<(String, String), Channel>,
    rooms: BTreeMap<String, Room>,
    /// By room and number.
    log: BTreeMap<(String, u64), RoomEntry>,
    deliveries: BTreeMap<String, Delivery>,
}

impl Rooms {
    /// Adds entries to logs. A room that was removed gets none.
    pub(crate) fn log(&mut self, entries: Vec<RoomEntry>) -> Outcome {
        for entry in entries {
            if entry.name.as_ref().is_some_and(|name| self.named(&entry.room, name).is_some()) {
                return Outcome::NameTaken;
            }
            let key = (entry.room.clone(), entry.number);
            if self.log.contains_key(&key) {
                return Outcome::Stale;
            }
            if self.rooms.contains_key(&entry.room) {
                self.log.insert(key, entry);
            }
        }
        Outcome::Written
    }

    pub(crate) fn remove_of_project(&mut self, project: &str) {
        let of_project = self.rooms.values().filter(|room| room.project == project);
        let rooms: Vec<String> = of_project.map(|room| room.id.clone()).collect();
        for room in rooms {
            self.remove(&room);
        }
    }

    fn remove(&mut self, id: &str) -> bool {
        self.log.retain(|(room, _), _| room != id);
        self.deliveries.retain(|_, delivery| delivery.room != id);
        self.rooms.remove(id).is_some()
    }

    fn entries(&self, room: &str, after: u64) -> impl DoubleEndedIterator<Item = &RoomEntry> {
        let of_room = (room.to_owned(), after + 1)..=(room.to_owned(), u64::MAX);
        self.log.range(of_room).map(|(_, entry)| entry)
    }

    fn named(&self, room: &str, name: &str) -> Option<&RoomEntry> {
        self.entries(room, 0).find(|entry| entry.name.as_deref() == Some(name))
    }
}

fn key(owner: &str, id: &str) -> (String, String) {
    (owner.to_owned(), id.to_owned())
}

impl RoomStore for InMemory {
    fn add_channel(&self, channel: Channel) -> StoreFuture<'_, bool> {
        let channels = &mut self.contents.lock().rooms.channels;
        let key = key(&channel.owner, &channel.id);
        let is_new = !channels.contains_key(&key);
        if is_new {
            channels.insert(key, channel);
        }
        ready(is_new)
    }

    fn change_channel(&self, from: Channel, to: Channel) -> StoreFuture<'_, Changed> {
        let channels = &mut self.contents.lock().rooms.channels;
        let known = channels.get_mut(&key(&from.owner, &from.id));
        ready(replace(known.filter(|known| known.sealed == from.sealed), to))
    }

    fn channel(&self, owner: &str, id: &str) -> StoreFuture<'_, Option<Channel>> {
        ready(self.contents.lock().rooms.channels.get(&key(owner, id)).cloned())
    }

    fn channels(&self, owner: &str, of: Page) -> StoreFuture<'_, Vec<Channel>> {
        let contents = self.contents.lock();
        let own = contents.rooms.channels.values().filter(|channel| channel.owner == owner);
        ready(page(own.map(|channel| (&*channel.id, channel)), &of, false))
    }

    fn remove_channel(&self, owner: &str, id: &str) -> StoreFuture<'_, bool> {
        ready(self.contents.lock().rooms.channels.remove(&key(owner, id)).is_some())
    }

    fn add_room(&self, room: Room) -> StoreFuture<'_, ()> {
        self.contents.lock().rooms.rooms.insert(room.id.clone(), room);
        ready(())
    }

    fn change_room(&self, room: Room) -> StoreFuture<'_, Changed> {
        let rooms = &mut self.contents.lock().rooms.rooms;
        let known = rooms.get_mut(&room.id);
        let known = known.filter(|known| known.version + 1 == room.version);
        ready(known.map_or(Changed::Stale, |known| {
            (known.version, known.sealed) = (room.version, room.sealed);
            Changed::Yes
        }))
    }

    fn room(&self, id: &str) -> StoreFuture<'_, Option<Room>> {
        ready(self.contents.lock().rooms.rooms.get(id).cloned())
    }

    fn rooms(&self, owner: &str, of: Page) -> StoreFuture<'_, Vec<Room>> {
        let (users, contents) = (self.users.lock(), self.contents.lock());
        let is_visible =
            |room: &&Room| room.owner == owner || users.is_member(&room.project, owner);
        let visible = contents.rooms.rooms.values().rev().filter(is_visible);
        ready(page(visible.map(|room| (&*room.id, room)), &of, true))
    }

    fn remove_room(&self, id: &str) -> StoreFuture<'_, bool> {
        ready(self.contents.lock().rooms.remove(id))
    }

    fn room_log(&self, room: &str, after: u64, limit: usize) -> StoreFuture<'_, Vec<RoomEntry>> {
        ready(self.contents.lock().rooms.entries(room, after).take(limit).cloned().collect())
    }

    fn named_entry(&self, room: &str, name: &str) -> StoreFuture<'_, Option<RoomEntry>> {
        ready(self.contents.lock().rooms.named(room, name).cloned())
    }

    fn last_entry(&self, room: &str) -> StoreFuture<'_, u64> {
        let contents = self.contents.lock();
        let last = contents.rooms.entries(room, 0).next_back().map(|entry| entry.number);
        ready(last.unwrap_or_default())
    }

    fn room_news(&self, rooms: &[String]) -> StoreFuture<'_, Vec<RoomNews>> {
        let contents = self.contents.lock();
        let known = rooms.iter().filter_map(|room| contents.rooms.rooms.get(room));
        let news = known.map(|room| RoomNews {
            room: room.id.clone(),
            last: contents.rooms.entries(&room.id, 0).next_back().map_or(0, |entry| entry.number),
            runs: contents.running(&room.owner, &project_scope(&room.project)),
        });
        ready(news.collect())
    }

    fn put_delivery(&self, delivery: Delivery) -> StoreFuture<'_, ()> {
        self.contents.lock().rooms.deliveries.insert(delivery.id.clone(), delivery);
        ready(())
    }

    fn delivery(&self, id: &str) -> StoreFuture<'_, Option<Delivery>> {
        ready(self.contents.lock().rooms.deliveries.get(id).cloned())
    }

    fn take_due(&self, now: u64, until: u64, limit: usize) -> StoreFuture<'_, Vec<Delivery>> {
        let mut contents = self.contents.lock();
        let deliveries = contents.rooms.deliveries.values_mut();
        let mut due: Vec<&mut Delivery> =
            deliveries.filter(|delivery| delivery.due.is_some_and(|due| due <= now)).collect();
        due.sort_by(|one, other| (one.due, &one.id).cmp(&(other.due, &other.id)));
        let taken = due.into_iter().take(limit).map(|delivery| {
            let taken = delivery.clone();
            delivery.due = Some(until);
            taken
        });
        ready(taken.collect())
    }

    fn dead_deliveries(&self, room: &str, of: Page) -> StoreFuture<'_, Vec<Delivery>> {
        let contents = self.contents.lock();
        let all = contents.rooms.deliveries.values();
        let dead = all.filter(|delivery| delivery.room == room && delivery.due.is_none());
        ready(page(dead.map(|delivery| (&*delivery.id, delivery)), &of, false))
    }

    fn remove_delivery(&self, id: &str) -> StoreFuture<'_, bool> {
        ready(self.contents.lock().rooms.deliveries.remove(id).is_some())
    }
}
