//! Rooms, their logs, channels, and calls of webhooks.

use std::collections::HashMap;

use throughline_conversations::store::{
    Changed, Channel, Delivery, Outcome, Page, Room, RoomEntry, RoomNews, RoomStore,
};
use throughline_gateway::thinking::store::StoreFuture;

use super::rows::{self, CHANNEL, DELIVERY, ROOM, ROOM_ENTRY};
use super::{SqlConversations, read_error, write_error};
use crate::sql::many_rows::{self, MAX_ROWS};
use crate::sql::{Database, Row, Statements, Value, WriteTransaction, values};

impl<D: Database> SqlConversations<D> {
    async fn find<T>(
        &self,
        statement: &str,
        values: Vec<Value>,
        read: fn(Row) -> Result<T, sqlx::Error>,
    ) -> Result<Vec<T>, sqlx::Error> {
        rows::all(self.database.read(statement, values).await?, read)
    }

    async fn find_first<T>(
        &self,
        statement: &str,
        values: Vec<Value>,
        read: fn(Row) -> Result<T, sqlx::Error>,
    ) -> Result<Option<T>, sqlx::Error> {
        rows::first(self.database.read(statement, values).await?, read)
    }

    /// Runs a statement that changes one row, and returns whether it has.
    async fn changes_a_row(
        &self,
        statement: &str,
        values: Vec<Value>,
    ) -> Result<bool, sqlx::Error> {
        Ok(self.database.run(statement, values).await? > 0)
    }

    async fn read_news(&self, rooms: &[String]) -> Result<Vec<RoomNews>, sqlx::Error> {
        let mut news: HashMap<String, RoomNews> = HashMap::new();
        for rooms in rooms.chunks(MAX_ROWS) {
            let (rooms, values) = many_rows::one_of(rooms);
            let statement = format!(
                "SELECT room.id, coalesce(max(number), 0) FROM room
                 LEFT JOIN room_log ON room_log.room = room.id
                 WHERE room.id IN {rooms} GROUP BY room.id"
            );
            let last = |mut row: Row| Ok((row.text()?, row.number()?));
            for (room, last) in self.find(&statement, values.clone(), last).await? {
                news.insert(room.clone(), RoomNews { room, last, runs: Vec::new() });
            }
            let statement = format!(
                "SELECT room.id, run.id FROM room JOIN run ON run.owner = room.owner
                 AND run.scope = 'project:' || room.project AND run.status = 'running'
                 WHERE room.id IN {rooms} ORDER BY run.id"
            );
            let running = |mut row: Row| Ok((row.text()?, row.text()?));
            for (room, run) in self.find(&statement, values, running).await? {
                if let Some(known) = news.get_mut(&room) {
                    known.runs.push(run);
                }
            }
        }
        Ok(news.into_values().collect())
    }

    async fn take_deliveries(
        &self,
        now: u64,
        until: u64,
        limit: usize,
    ) -> Result<Vec<Delivery>, sqlx::Error> {
        let mut transaction = self.database.begin().await?;
        let statement = format!(
            "SELECT {DELIVERY} FROM delivery WHERE due <= $1 ORDER BY due, id LIMIT $2 {}",
            D::HOLD
        );
        let due = transaction.fetch(&statement, values![now, limit]).await?;
        let due = rows::all(due, rows::delivery)?;
        let mut taken = Vec::with_capacity(due.len());
        for delivery in due {
            let statement = "UPDATE delivery SET due = $1 WHERE id = $2 AND due <= $3";
            let values = values![until, &*delivery.id, now];
            if transaction.execute(statement, values).await? > 0 {
                taken.push(delivery);
            }
        }
        transaction.commit().await?;
        Ok(taken)
    }
}

/// Adds entries to the logs of rooms. A room that was removed gets none.
pub(super) async fn add_entries(
    to: &mut impl Statements,
    entries: &[RoomEntry],
) -> Result<Outcome, sqlx::Error> {
    for RoomEntry { room, number, name, sealed } in entries {
        let (room, number) = (&**room, *number);
        if let Some(name) = name {
            let taken = "SELECT 1 FROM room_log WHERE room = $1 AND name = $2";
            if !to.fetch(taken, values![room, &**name]).await?.is_empty() {
                return Ok(Outcome::NameTaken);
            }
        }
        let taken = "SELECT 1 FROM room_log WHERE room = $1 AND number = $2";
        if !to.fetch(taken, values![room, number]).await?.is_empty() {
            return Ok(Outcome::Stale);
        }
        let exists = "SELECT 1 FROM room WHERE id = $1";
        if to.fetch(exists, values![room]).await?.is_empty() {
            continue;
        }
        let statement = format!("INSERT INTO room_log ({ROOM_ENTRY}) VALUES ($1, $2, $3, $4)");
        to.execute(&statement, values![room, number, name.clone(), sealed.clone()]).await?;
    }
    Ok(Outcome::Written)
}

/// Adds the place where a page starts to a statement.
fn after(page: Option<String>, values: &mut Vec<Value>, sign: &str) -> String {
    match page {
        Some(after) => {
            values.push(after.into());
            format!("AND id {sign} ${}", values.len())
        }
        None => String::new(),
    }
}

impl<D: Database> RoomStore for SqlConversations<D> {
    fn add_channel(&self, channel: Channel) -> StoreFuture<'_, bool> {
        let Channel { id, owner, created, sealed } = channel;
        Box::pin(async move {
            let statement = format!(
                "INSERT INTO channel ({CHANNEL}) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
            );
            let values = values![owner, id, created, sealed];
            self.changes_a_row(&statement, values).await.map_err(write_error)
        })
    }

    fn change_channel(&self, from: Channel, to: Channel) -> StoreFuture<'_, Changed> {
        Box::pin(async move {
            let statement =
                "UPDATE channel SET sealed = $1 WHERE owner = $2 AND id = $3 AND sealed = $4";
            let values = values![to.sealed, from.owner, from.id, from.sealed];
            let changed = self.changes_a_row(statement, values).await.map_err(write_error)?;
            Ok(if changed { Changed::Yes } else { Changed::Stale })
        })
    }

    fn channel(&self, owner: &str, id: &str) -> StoreFuture<'_, Option<Channel>> {
        let values = values![owner, id];
        Box::pin(async move {
            let statement = format!("SELECT {CHANNEL} FROM channel WHERE owner = $1 AND id = $2");
            self.find_first(&statement, values, rows::channel).await.map_err(read_error)
        })
    }

    fn channels(&self, owner: &str, page: Page) -> StoreFuture<'_, Vec<Channel>> {
        let mut values = values![owner, page.limit];
        Box::pin(async move {
            let after = after(page.after, &mut values, ">");
            let statement = format!(
                "SELECT {CHANNEL} FROM channel WHERE owner = $1 {after} ORDER BY id LIMIT $2"
            );
            self.find(&statement, values, rows::channel).await.map_err(read_error)
        })
    }

    fn remove_channel(&self, owner: &str, id: &str) -> StoreFuture<'_, bool> {
        let values = values![owner, id];
        Box::pin(async move {
            let statement = "DELETE FROM channel WHERE owner = $1 AND id = $2";
            self.changes_a_row(statement, values).await.map_err(write_error)
        })
    }

    fn add_room(&self, room: Room) -> StoreFuture<'_, ()> {
        let Room { id, owner, project, branch, created, version, sealed } = room;
        let values = values![id, owner, project, branch, created, version, sealed];
        Box::pin(async move {
            let statement =
                format!("INSERT INTO room ({ROOM}) VALUES ($1, $2, $3, $4, $5, $6, $7)");
            self.database.run(&statement, values).await.map(drop).map_err(write_error)
        })
    }

    fn change_room(&self, room: Room) -> StoreFuture<'_, Changed> {
        Box::pin(async move {
            let statement =
                "UPDATE room SET version = $1, sealed = $2 WHERE id = $3 AND version = $4";
            let before = room.version.saturating_sub(1);
            let values = values![room.version, room.sealed, room.id, before];
            let changed = self.changes_a_row(statement, values).await.map_err(write_error)?;
            Ok(if changed { Changed::Yes } else { Changed::Stale })
        })
    }

    fn room(&self, id: &str) -> StoreFuture<'_, Option<Room>> {
        let values = values![id];
        Box::pin(async move {
            let statement = format!("SELECT {ROOM} FROM room WHERE id = $1");
            self.find_first(&statement, values, rows::room).await.map_err(read_error)
        })
    }

    fn rooms(&self, owner: &str, page: Page) -> StoreFuture<'_, Vec<Room>> {
        let mut values = values![owner, page.limit];
        Box::pin(async move {
            let after = after(page.after, &mut values, "<");
            let statement = format!(
                "SELECT {ROOM} FROM room WHERE (owner = $1
                 OR project IN (SELECT project FROM project_member WHERE account = $1)) {after}
                 ORDER BY id DESC LIMIT $2"
            );
            self.find(&statement, values, rows::room).await.map_err(read_error)
        })
    }

    fn remove_room(&self, id: &str) -> StoreFuture<'_, bool> {
        let values = values![id];
        Box::pin(async move {
            let statement = "DELETE FROM room WHERE id = $1";
            self.changes_a_row(statement, values).await.map_err(write_error)
        })
    }

    fn room_log(&self, room: &str, after: u64, limit: usize) -> StoreFuture<'_, Vec<RoomEntry>> {
        let values = values![room, after, limit];
        Box::pin(async move {
            let statement = format!(
                "SELECT {ROOM_ENTRY} FROM room_log WHERE room = $1 AND number > $2
                 ORDER BY number LIMIT $3"
            );
            self.find(&statement, values, rows::room_entry).await.map_err(read_error)
        })
    }

    fn named_entry(&self, room: &str, name: &str) -> StoreFuture<'_, Option<RoomEntry>> {
        let values = values![room, name];
        Box::pin(async move {
            let statement =
                format!("SELECT {ROOM_ENTRY} FROM room_log WHERE room = $1 AND name = $2");
            self.find_first(&statement, values, rows::room_entry).await.map_err(read_error)
        })
    }

    fn last_entry(&self, room: &str) -> StoreFuture<'_, u64> {
        let values = values![room];
        Box::pin(async move {
            let statement = "SELECT coalesce(max(number), 0) FROM room_log WHERE room = $1";
            let last = self.find_first(statement, values, |mut row| row.number()).await;
            Ok(last.map_err(read_error)?.unwrap_or_default())
        })
    }

    fn room_news(&self, rooms: &[String]) -> StoreFuture<'_, Vec<RoomNews>> {
        let rooms = rooms.to_vec();
        Box::pin(async move { self.read_news(&rooms).await.map_err(read_error) })
    }

    fn put_delivery(&self, delivery: Delivery) -> StoreFuture<'_, ()> {
        let Delivery { id, room, attempts, due, sealed } = delivery;
        let values = values![id, room, attempts, due, sealed];
        Box::pin(async move {
            let statement = format!(
                "INSERT INTO delivery ({DELIVERY}) VALUES ($1, $2, $3, $4, $5)
                 ON CONFLICT (id) DO UPDATE SET attempts = $3, due = $4, sealed = $5"
            );
            self.database.run(&statement, values).await.map(drop).map_err(write_error)
        })
    }

    fn delivery(&self, id: &str) -> StoreFuture<'_, Option<Delivery>> {
        let values = values![id];
        Box::pin(async move {
            let statement = format!("SELECT {DELIVERY} FROM delivery WHERE id = $1");
            self.find_first(&statement, values, rows::delivery).await.map_err(read_error)
        })
    }

    fn take_due(&self, now: u64, until: u64, limit: usize) -> StoreFuture<'_, Vec<Delivery>> {
        Box::pin(async move { self.take_deliveries(now, until, limit).await.map_err(write_error) })
    }

    fn dead_deliveries(&self, room: &str, page: Page) -> StoreFuture<'_, Vec<Delivery>> {
        let mut values = values![room, page.limit];
        Box::pin(async move {
            let after = after(page.after, &mut values, ">");
            let statement = format!(
                "SELECT {DELIVERY} FROM delivery WHERE room = $1 AND due IS NULL {after}
                 ORDER BY id LIMIT $2"
            );
            self.find(&statement, values, rows::delivery).await.map_err(read_error)
        })
    }

    fn remove_delivery(&self, id: &str) -> StoreFuture<'_, bool> {
        let values = values![id];
        Box::pin(async move {
            let statement = "DELETE FROM delivery WHERE id = $1";
            self.changes_a_row(statement, values).await.map_err(write_error)
        })
    }
}
