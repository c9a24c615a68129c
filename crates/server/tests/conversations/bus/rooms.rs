//! Many rooms behind a proxy that gives each connection to the next instance, while readers hop and one
//! instance is killed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{Client, StreamedAnswer, wait_until};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::{Cluster, make_room};
use crate::rooms::say;
use crate::support::{Api, text};

/// How many rooms there are, unless `BUS_ROOMS` says otherwise.
const ROOMS: usize = 40;
/// How many rooms are made at the same time.
const PARALLEL: usize = 16;
/// How many events a reader takes from one instance.
const HOP: usize = 3;
/// How often a reader that is refused tries again.
const MAX_ATTEMPTS: usize = 1_000;

fn rooms() -> usize {
    std::env::var("BUS_ROOMS").map_or(ROOMS, |count| count.parse().expect("a number"))
}

/// A sentence that only one room has.
fn mark(room: usize) -> String {
    format!("mark{room:03}x")
}

fn answer(room: usize) -> String {
    format!("It is {0}. Still {0}. And {0} again.", mark(room))
}

/// The answers pause in the middle, so that the instance dies while they are written.
fn scenario(rooms: usize) -> String {
    let step = |room: usize| {
        let (mark, answer) = (mark(room), answer(room));
        format!(
            "[[step]]\nwhen = {{ contains = \"{mark}\" }}\nfault = \"stall:event=22,ms=6000\"\n\
             say = [{{ thinking = \"I think about {mark}. And more.\" }}, {{ text = \"{answer}\" }}]\n"
        )
    };
    (0..rooms).map(step).collect()
}

/// Gives each connection to the next instance, or to the other one if that is gone.
async fn proxy(instances: [String; 2]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let mut turn = 0;
        while let Ok((mut client, _)) = listener.accept().await {
            turn += 1;
            let order = [0, 1].map(|next| instances[(turn + next) % 2].clone());
            tokio::spawn(async move {
                for instance in order {
                    let address = instance.trim_start_matches("http://");
                    if let Ok(mut server) = TcpStream::connect(address).await {
                        // A broken connection is what its client has to live with.
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                        return;
                    }
                }
            });
        }
    });
    format!("http://{address}")
}

/// The readers of one room, through the proxy.
struct Readers<'a> {
    client: &'a Client,
    /// How many of them have seen something.
    begun: &'a AtomicUsize,
}

impl Readers<'_> {
    /// Opens a stream on a connection of its own, at whichever instance is next.
    async fn open(&self, path: &str) -> StreamedAnswer {
        let headers = [("authorization", "Bearer ada"), ("connection", "close")];
        for _ in 0..MAX_ATTEMPTS {
            if let Ok(stream) = self.client.try_open(Method::GET, path, &headers, "").await
                && stream.status == 200
            {
                return stream;
            }
            tokio::task::yield_now().await;
        }
        panic!("no instance answers {path}");
    }

    /// Reads a run, and hops after some lines. Returns its text and how it ended.
    async fn run(&self, run: &str) -> (String, String) {
        let (mut said, mut cursor) = (String::new(), String::new());
        loop {
            let mut stream = self.open(&format!("/api/runs/{run}/events{cursor}")).await;
            let (mut pending, mut count) = (String::new(), 0);
            while count < HOP
                && let Some(Ok(piece)) = stream.try_next().await
            {
                pending.push_str(std::str::from_utf8(&piece).expect("text"));
                while let Some((line, rest)) = pending.split_once('\n') {
                    let line: Value = serde_json::from_str(line).expect("a line");
                    if let Some(number) = line["seq"].as_u64() {
                        (cursor, count) = (format!("?after={number}"), count + 1);
                    }
                    match text(&line["type"]) {
                        "text" => said.push_str(text(&line["content"])),
                        "done" => return (said, text(&line["reason"]).to_owned()),
                        _ => {}
                    }
                    pending = rest.to_owned();
                }
            }
            self.begun.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reads a room, and hops after some events. Returns all events up to the answer.
    async fn room(&self, room: &str) -> Vec<Value> {
        let (mut seen, mut cursor) = (Vec::new(), 0);
        loop {
            let mut stream = self.open(&format!("{room}/events?after={cursor}")).await;
            let (mut pending, mut count) = (String::new(), 0);
            while count < HOP
                && let Some(Ok(piece)) = stream.try_next().await
            {
                pending.push_str(std::str::from_utf8(&piece).expect("text"));
                while let Some((frame, rest)) = pending.split_once("\n\n") {
                    let data = frame.lines().find_map(|line| line.strip_prefix("data: "));
                    pending = match data {
                        Some(data) => {
                            let event: Value = serde_json::from_str(data).expect("JSON");
                            count += 1;
                            if let Some(seq) = event["seq"].as_u64() {
                                assert_eq!(seq, cursor + 1, "every stored event, once: {seen:#?}");
                                cursor = seq;
                            }
                            let is_answer =
                                event["type"] == "MESSAGE" && event["channel"] == "tutor";
                            seen.push(event);
                            if is_answer {
                                return seen;
                            }
                            rest.to_owned()
                        }
                        None => rest.to_owned(),
                    };
                }
            }
        }
    }
}

/// What the readers of a room got.
struct Seen {
    events: Vec<Value>,
    said: String,
    reason: String,
}

fn check_room(number: usize, rooms: usize, seen: &Seen) -> bool {
    let node = &seen.events.last().expect("an answer")["data"];
    let is_complete = seen.reason == "completed";
    assert!(is_complete || seen.reason == "interrupted", "{}", seen.reason);
    assert_eq!(node["interrupted"] == true, !is_complete, "{node}");
    match is_complete {
        true => assert_eq!(seen.said, answer(number)),
        false => assert!(answer(number).starts_with(&seen.said), "{}", seen.said),
    }
    assert_eq!(text(&node["content"]), seen.said, "the room and the run say the same");
    let all = format!("{} {}", json!(seen.events), seen.said);
    let found: BTreeSet<usize> = (0..rooms).filter(|other| all.contains(&mark(*other))).collect();
    assert_eq!(found, BTreeSet::from([number]), "sentences of other rooms");
    is_complete
}

async fn begin(apis: [&Api; 2], number: usize) -> (String, String) {
    let api = apis[number % 2];
    let room = make_room(api).await;
    let (_, runs) = say(api, &room, &format!("@tutor {}", mark(number))).await;
    (room, runs[0].clone())
}

/// Covers: S0-45, C-35, X-1, X-3
#[tokio::test]
async fn readers_that_hop_get_everything_although_an_instance_is_killed() {
    let rooms = rooms();
    let mut cluster = Cluster::start(&scenario(rooms)).await;
    let [one, two] = &cluster.apis;
    let client = Client::new(&proxy([one, two].map(|api| api.gateway.url.clone())).await);
    let begun = stream::iter(0..rooms).map(|number| begin([one, two], number));
    let begun: Vec<(String, String)> = begun.buffered(PARALLEL).collect().await;
    let hops = AtomicUsize::new(0);
    let readers = Readers { client: &client, begun: &hops };
    let read = join_all(begun.iter().map(async |(room, run)| {
        let (events, (said, reason)) = tokio::join!(readers.room(room), readers.run(run));
        Seen { events, said, reason }
    }));
    let [one, two] = &mut cluster.apis;
    let kill = async {
        wait_until("readers read", async || hops.load(Ordering::Relaxed) >= rooms / 2).await;
        two.gateway.kill().await;
    };
    let (seen, ()) = tokio::join!(read, kill);
    let mut complete = 0;
    for (number, seen) in seen.iter().enumerate() {
        complete += usize::from(check_room(number, rooms, seen));
    }
    eprintln!("{rooms} rooms: {complete} complete, {} interrupted", rooms - complete);
    assert!(complete >= rooms / 2 && complete < rooms, "{complete} of {rooms} are complete");
    // Nothing is stored twice.
    for (room, _) in &begun {
        let history = one.get(&format!("{room}/messages")).await;
        assert_eq!(history["nodes"].as_array().map(Vec::len), Some(2), "{history}");
    }
    assert_eq!(one.refusals().await, [""; 0]);
}
