//! Runs the suite of every bus on a Redis server, and what only this bus does.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use throughline_backends::redis::RedisBus;
use throughline_conversations::bus::suite::{check, hear, piece};
use throughline_conversations::bus::{Bus, News, Topic};
use throughline_conversations::store::Piece;
use throughline_testkit::{Redis, wait_until};

const RETENTION: Duration = Duration::from_secs(600);

async fn connect(redis: &Redis) -> RedisBus {
    RedisBus::connect(&redis.url, RETENTION).await.unwrap()
}

fn run() -> Topic {
    Topic::Run("run_9".to_owned())
}

fn publish(bus: &RedisBus, piece: Piece) {
    bus.publish(&run(), News::Piece(Arc::new(piece)));
}

async fn numbers(bus: &RedisBus, after: u64) -> Vec<(u64, u64)> {
    let pieces = bus.logged("run_9", after).await;
    pieces.iter().map(|piece| (piece.first, piece.last)).collect()
}

#[tokio::test]
async fn redis_bus_passes_the_suite() {
    let redis = Redis::start();
    let (one, other) = (connect(&redis).await, connect(&redis).await);
    check(&one, &other).await;
    check(&other, &one).await;
}

#[tokio::test]
async fn stream_of_a_run_has_each_piece_once_and_expires() {
    let redis = Redis::start();
    let (one, other) = (connect(&redis).await, connect(&redis).await);
    for (first, last) in [(0, 0), (1, 3), (4, 4), (4, 4), (1, 3), (5, 9)] {
        publish(&one, piece(first, last));
    }
    wait_until("the pieces are there", async || numbers(&other, 4).await == [(5, 9)]).await;
    assert_eq!(numbers(&other, 0).await, [(1, 3), (4, 4), (5, 9)]);
    assert_eq!(numbers(&other, 2).await, [(1, 3), (4, 4), (5, 9)], "the piece with entry 3");
    assert_eq!(numbers(&other, 9).await, []);
    assert_eq!(other.logged("run_9", 3).await[0].sealed, piece(4, 4).sealed);
    let ids = redis.command(&["XRANGE", "throughline:run:run_9", "-", "+"]);
    assert!(["0-3", "0-4", "0-9"].iter().all(|id| ids.contains(id)), "{ids}");
    let left: u64 = redis.command(&["PTTL", "throughline:run:run_9"]).trim().parse().unwrap();
    assert!(left > 0 && left <= 600_000, "{left}");
    for number in 10..3_000 {
        publish(&one, piece(number, number));
    }
    wait_until("all are there", async || numbers(&other, 2_998).await == [(2_999, 2_999)]).await;
    let length: u64 = redis.command(&["XLEN", "throughline:run:run_9"]).trim().parse().unwrap();
    assert!((1_000..1_500).contains(&length), "{length}");
}

#[tokio::test]
async fn wrong_address_is_refused_without_its_password() {
    let redis = Redis::start();
    redis.stop();
    let port = redis.url.rsplit(':').next().unwrap();
    for url in [format!("redis://ada:s3cret@127.0.0.1:{port}"), "redis://s3cret@:x/".to_owned()] {
        let error = RedisBus::connect(&url, RETENTION).await.unwrap_err().to_string();
        assert!(error.starts_with("cannot use the Redis server"), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn lost_server_drops_news_and_is_used_again_when_it_is_back() {
    let redis = Redis::start();
    let (one, other) = (connect(&redis).await, connect(&redis).await);
    let mut listener = other.listen(run());
    redis.stop();
    for bus in [&one, &other] {
        wait_until("the loss is known", async || !bus.health().is_live()).await;
        assert!(bus.health().failure().is_some());
    }
    assert!(!one.wants(&run()));
    let dropped = one.health().dropped.get();
    for number in 1..=100 {
        publish(&one, piece(number, number));
    }
    assert_eq!(one.health().dropped.get(), dropped + 100);
    assert_eq!(numbers(&one, 0).await, []);
    redis.restart();
    for bus in [&one, &other] {
        wait_until("the bus is connected again", async || bus.health().is_live()).await;
        assert_eq!(bus.health().failure(), None);
    }
    // Its listeners are told that they may have missed something.
    assert_eq!(listener.next().await, News::Missed);
    publish(&one, piece(101, 101));
    assert_eq!(hear(&mut listener).await, News::Piece(Arc::new(piece(101, 101))));
}

/// A server that hangs takes nothing, and the memory for what waits is bounded.
#[tokio::test]
async fn server_that_hangs_costs_little_memory_and_no_time() {
    const PIECES: u64 = 40_000;
    let redis = Redis::start();
    let bus = connect(&redis).await;
    let id = redis.command(&["INFO", "server"]);
    let id =
        id.lines().find_map(|line| line.strip_prefix("process_id:")).unwrap().trim().to_owned();
    let signal = |name: &str| {
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    };
    signal("STOP");
    let began = Instant::now();
    for number in 1..=PIECES {
        publish(&bus, Piece { sealed: vec![7; 1_024], ..piece(number, number) });
    }
    let took = began.elapsed();
    let dropped = bus.health().dropped.get();
    signal("CONT");
    assert!(took < Duration::from_secs(5), "publishing waited: {took:?}");
    // At most the queue, and the batch on its way.
    assert!(dropped >= PIECES - 4_096 - 256, "{dropped}");
    assert!(dropped < PIECES, "something waits: {dropped}");
}
