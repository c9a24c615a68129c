//! What a sealed project costs beside a managed one: a page of its nodes, and a turn.

use std::time::{Duration, Instant};

use crate::Failure;
use crate::bench_proxy::load;
use crate::bench_proxy::process::cpu_time;
use crate::bench_proxy::upstream::{Writes, model_name};

use super::server::{Bench, Server, Subject, call, create_project, get_with};

/// A chat key of 32 bytes, all 1, in base64url, and its check.
const KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
const KEY_CHECK: &str = "JOLlThf5a7Lj5psrBQvyng";
const KEY_HEADER: &str = "x-throughline-chat-key";
/// Turns of each project before anything is measured: a page of a hundred nodes.
const TURNS: usize = 50;
/// Turns whose processor time is taken together: the system counts in hundredths of a second.
const CPU_TURNS: u32 = 100;
/// Events of an answer: thinking, then text.
const ANSWER_EVENTS: u32 = 60;

/// A request in both modes.
pub(super) struct Pair {
    name: &'static str,
    managed: Cost,
    sealed: Cost,
}

#[derive(Clone, Copy)]
struct Cost {
    median: Duration,
    /// CPU time of the server for one.
    cpu: Duration,
}

/// A project, and the headers that open it.
struct Chat {
    project: String,
    headers: &'static [(&'static str, &'static str)],
}

impl Bench<'_> {
    /// Measures a managed and a sealed project on SQLite, one request of each after the other.
    pub(super) fn measure_sealed(&self) -> Result<Vec<Pair>, Failure> {
        let folder = tempfile::tempdir()
            .map_err(|error| format!("cannot make a temporary folder: {error}"))?;
        let subject = Subject { name: "SQLite", folder: folder.path(), database: None };
        let server = self.start(&subject)?;
        let model = model_name(ANSWER_EVENTS, Writes::Blocks);
        let managed = format!(r#"{{"title":"Bench","model":"{model}"}}"#);
        let sealed = format!(
            r#"{{"title":"Bench","model":"{model}","mode":"sealed","keyCheck":"{KEY_CHECK}"}}"#
        );
        let chat = |body: &str, headers| -> Result<Chat, Failure> {
            Ok(Chat { project: create_project(server.address, headers, body)?, headers })
        };
        let chats = [chat(&managed, &[])?, chat(&sealed, &[(KEY_HEADER, KEY)])?];
        for _ in 0..TURNS {
            for chat in &chats {
                turn(&server, chat)?;
            }
        }
        let page = self.pages(&server, &chats)?;
        let turn = self.turns(&server, &chats)?;
        Ok(vec![page, turn])
    }

    fn pages(&self, server: &Server, chats: &[Chat; 2]) -> Result<Pair, Failure> {
        let times = self.effort.requests;
        let mut costs = [None; 2];
        for (chat, cost) in chats.iter().zip(&mut costs) {
            let path = format!("/api/projects/{}/nodes?limit=100", chat.project);
            let request = get_with(server, &path, chat.headers);
            let replies =
                |count| self.runtime.block_on(load::time_replies(server.address, &request, count));
            replies(5)?;
            let before = cpu_time(server.guard.id())?;
            let taken = replies(times)?;
            let cpu = cpu_time(server.guard.id())?.saturating_sub(before) / times;
            *cost = Some(Cost { median: median(taken), cpu });
        }
        pair("page of 100 nodes", costs)
    }

    fn turns(&self, server: &Server, chats: &[Chat; 2]) -> Result<Pair, Failure> {
        let mut taken = [Vec::new(), Vec::new()];
        for _ in 0..self.effort.requests {
            for (taken, chat) in taken.iter_mut().zip(chats) {
                let began = Instant::now();
                turn(server, chat)?;
                taken.push(began.elapsed());
            }
        }
        let mut costs = [None; 2];
        for ((chat, taken), cost) in chats.iter().zip(taken).zip(&mut costs) {
            let before = cpu_time(server.guard.id())?;
            for _ in 0..CPU_TURNS {
                turn(server, chat)?;
            }
            let cpu = cpu_time(server.guard.id())?.saturating_sub(before) / CPU_TURNS;
            *cost = Some(Cost { median: median(taken), cpu });
        }
        pair("turn after 100 nodes", costs)
    }
}

fn pair(name: &'static str, costs: [Option<Cost>; 2]) -> Result<Pair, Failure> {
    match costs {
        [Some(managed), Some(sealed)] => Ok(Pair { name, managed, sealed }),
        _ => Err(format!("{name} was not measured")),
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn turn(server: &Server, chat: &Chat) -> Result<(), Failure> {
    let path = format!("/api/projects/{}/chat", chat.project);
    let question = r#"{"message":"What do herons do when it rains for a week?"}"#;
    let reply = call(server.address, &path, chat.headers, question)?;
    match reply.contains(r#""reason":"completed""#) {
        true => Ok(()),
        false => Err(format!("the chat did not end well: {reply}")),
    }
}

/// Both modes as a table.
pub(super) fn table(pairs: &[Pair]) -> String {
    let mut table = "| request | managed, median | sealed, median | ratio | managed, CPU | sealed, CPU | ratio |\n|---|---:|---:|---:|---:|---:|---:|\n"
        .to_owned();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    for Pair { name, managed, sealed } in pairs {
        table.push_str(&format!(
            "| {name} | {:.2} ms | {:.2} ms | {:.2} | {:.2} ms | {:.2} ms | {:.2} |\n",
            ms(managed.median),
            ms(sealed.median),
            ms(sealed.median) / ms(managed.median),
            ms(managed.cpu),
            ms(sealed.cpu),
            ms(sealed.cpu) / ms(managed.cpu),
        ));
    }
    table
}
