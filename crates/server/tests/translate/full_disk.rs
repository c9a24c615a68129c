//! A full disk: every store reports it, what cannot be stored is not claimed to be, and everything
//! works again as soon as there is room.

use http::Method;
use serde_json::{Value, json};
use throughline_testkit::{DiskKind, Gateway, block_fates, wait_until};

use crate::stored_responses::{KEY, PATH, create, get, response_request, slow_upstream, turns_in};
use crate::support::{BINARY, BedOptions, TestBed, new_client, thinking_in};
use crate::test_client::{events, list, text};
use crate::vault::client_in_tool_loop;

const NOT_STORED: &str = "setting_adapted=store;reason=not_written";
const STORES: [&str; 4] = ["memory", "vault", "settings", "responses"];

/// The status of `/readyz`, and its reasons.
async fn readiness(gateway: &Gateway) -> (u16, String) {
    let answer = gateway.client.get("/readyz").await;
    (answer.status, answer.json()["reasons"].to_string())
}

async fn wait_until_ready(gateway: &Gateway) {
    wait_until("all stores can be written", async || readiness(gateway).await.0 == 200).await;
}

/// How many writes to each store have failed.
async fn write_errors(gateway: &Gateway) -> [u64; 4] {
    let metrics = gateway.client.get("/metrics").await.expect_ok().text();
    STORES.map(|store| {
        let name = format!("throughline_store_write_errors_total{{store=\"{store}\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&name));
        value.unwrap_or_else(|| panic!("no {name}")).parse().expect("a number")
    })
}

#[tokio::test]
async fn stores_report_a_full_disk_and_recover() {
    for kind in DiskKind::available() {
        let mut bed = TestBed::build(&BedOptions {
            upstreams: &["anthropic, budget", "deepseek-v4"],
            disk: Some(kind),
            ..BedOptions::default()
        })
        .await;
        let client = bed.gateway.client.clone();
        let kept = create(&client, "ponder this", json!({})).await;
        let named = client.post("/v1/conversations", &KEY, &json!({})).await.expect_ok().json();
        wait_until_ready(&bed.gateway).await;
        assert_eq!(write_errors(&bed.gateway).await, [0; 4]);

        bed.gateway.fill_disk();
        let (mut looping, _) = client_in_tool_loop(&bed).await;
        let mut signed = new_client("anthropic");
        signed.push_user("ponder this");
        bed.send(signed.as_mut()).await;
        check_unstored_responses(&bed, &kept).await;
        check_incomplete_conversation(&bed, &named["id"]).await;
        check_refused_switch(&bed.gateway).await;
        check_reports(&bed.gateway).await;

        bed.gateway.free_disk();
        // Nothing else is sent meanwhile.
        wait_until_ready(&bed.gateway).await;
        let stored = create(&client, "ponder that", json!({})).await;
        assert_eq!(stored["store"], true);
        bed.gateway.switch("b").await;
        // What was made while the disk was full waited for room, and survives a kill.
        bed.gateway.kill().await;
        bed.gateway.restart().await;
        let active = bed.gateway.client.get("/admin/backends").await.json()["active"].clone();
        assert_eq!(active, "b");
        bed.gateway.switch("a").await;
        for client in [&mut looping, &mut signed] {
            client.push_user("ponder more");
            bed.send(client.as_mut()).await;
            assert_eq!(thinking_in(&bed.last_received(0).await.json()), 1, "{kind:?}");
            let fates = block_fates(&bed.gateway.last_turn().await);
            assert!(["restored", "sent"].contains(&fates[0].as_str()), "{kind:?}: {fates:?}");
        }
        let again = response_request("ponder more", json!({"conversation": named["id"]}));
        let refused = bed.gateway.client.post(PATH, &KEY, &again).await;
        assert_eq!(refused.status, 404, "{kind:?}: it still lacks a turn");
        let on = json!({"previous_response_id": stored["id"]});
        create(&bed.gateway.client, "and on", on).await;
        assert_eq!(turns_in(&bed.last_received(0).await.json()), 3);
        wait_until_ready(&bed.gateway).await;
        bed.expect_no_refusals().await;
    }
}

/// A response that is not stored says so, and is not found later. Stored ones can be continued.
async fn check_unstored_responses(bed: &TestBed, kept: &Value) {
    let client = &bed.gateway.client;
    let on = json!({"previous_response_id": kept["id"]});
    let answer = client.post(PATH, &KEY, &response_request("ponder more", on)).await.expect_ok();
    assert_eq!(turns_in(&bed.last_received(0).await.json()), 3);
    assert_eq!(answer.json()["store"], false);
    assert!(answer.header("x-throughline-loss").contains(NOT_STORED), "{:?}", answer.headers);
    let losses = &bed.gateway.turn_of(&answer).await["losses"];
    let loss = json!({"kind": "setting_adapted", "setting": "store", "reason": "not_written"});
    assert_eq!(list(losses).filter(|found| **found == loss).count(), 1, "{losses}");
    let lost = answer.json();
    assert_eq!(get(client, &format!("{PATH}/{}", text(&lost["id"]))).await.0, 404);
    let on = json!({"previous_response_id": lost["id"]});
    let answer = client.post(PATH, &KEY, &response_request("and on", on)).await;
    assert_eq!(answer.status, 400);
    assert_eq!(answer.json()["error"]["code"], "previous_response_not_found");

    let body = response_request("ponder this", json!({"stream": true})).to_string();
    let json = ("content-type", "application/json");
    let stream = client.send(Method::POST, PATH, &[KEY[0], json], body).await.expect_ok();
    let end = events(&stream.text()).pop().expect("an end");
    assert_eq!(end["type"], "response.completed");
    assert_eq!(end["response"]["store"], false);
    assert_eq!(end["response"]["status"], "completed");

    // A background response exists only in the store.
    let background = response_request("ponder this", json!({"background": true}));
    assert_eq!(client.post(PATH, &KEY, &background).await.status, 500);
}

/// A conversation that lacks a turn is not continued.
async fn check_incomplete_conversation(bed: &TestBed, id: &Value) {
    let client = &bed.gateway.client;
    let lost = create(client, "ponder this", json!({"conversation": id})).await;
    assert_eq!((&lost["store"], &lost["conversation"]), (&json!(false), &Value::Null));
    let again = response_request("ponder more", json!({"conversation": id}));
    assert_eq!(client.post(PATH, &KEY, &again).await.status, 404);
}

/// A switch that a restart would forget is refused.
async fn check_refused_switch(gateway: &Gateway) {
    let answer = gateway.client.post("/admin/switch", &[], &json!({"backend": "b"})).await;
    assert_eq!(answer.status, 500);
    let message = answer.json()["error"]["message"].to_string();
    assert!(message.contains("cannot store the active backend"), "{message}");
    assert_eq!(gateway.client.get("/admin/backends").await.json()["active"], "a");
}

/// `/readyz` and the metrics name every store.
async fn check_reports(gateway: &Gateway) {
    for reason in [
        "[\"cannot write the thinking memory",
        "cannot write the vault",
        "cannot store the active backend",
        "cannot write stored conversations",
    ] {
        wait_until(reason, async || {
            let (status, reasons) = readiness(gateway).await;
            status == 503 && reasons.contains(reason)
        })
        .await;
    }
    let errors = write_errors(gateway).await;
    assert!(errors.iter().all(|count| *count > 0), "{errors:?}");
}

/// The end of a background response waits for room in memory, where clients find it.
#[tokio::test]
async fn background_response_that_ends_on_a_full_disk_is_stored_later() {
    for kind in DiskKind::available() {
        let (simulator, config) = slow_upstream().await;
        let mut gateway = Gateway::start_on_small_disk(BINARY, &config, kind).await;
        let client = gateway.client.clone();
        let run = create(&client, "slowly", json!({"background": true})).await;
        gateway.fill_disk();
        let path = format!("{PATH}/{}", text(&run["id"]));
        wait_until("it has ended", async || get(&client, &path).await.1["status"] == "completed")
            .await;
        let ended = get(&client, &path).await.1;
        wait_until("its end cannot be stored", async || {
            let on = json!({"previous_response_id": run["id"]});
            let answer = client.post(PATH, &KEY, &response_request("and on", on)).await;
            answer.json()["error"]["code"] == "previous_response_not_found"
        })
        .await;
        let cancelled = client.post(&format!("{path}/cancel"), &KEY, &json!({})).await;
        assert_eq!(cancelled.expect_ok().json(), ended);
        gateway.free_disk();
        wait_until("it is stored", async || {
            let on = json!({"previous_response_id": run["id"]});
            client.post(PATH, &KEY, &response_request("slowly", on)).await.status == 200
        })
        .await;
        gateway.kill().await;
        gateway.restart().await;
        assert_eq!(get(&gateway.client, &path).await, (200, ended), "{kind:?}");
        drop(simulator);
    }
}

/// `/readyz` notices a full disk although nothing is written.
#[tokio::test]
async fn idle_gateway_is_not_ready_on_a_full_disk() {
    for kind in DiskKind::available() {
        let bed = TestBed::build(&BedOptions {
            upstreams: &["anthropic, budget"],
            disk: Some(kind),
            ..BedOptions::default()
        })
        .await;
        bed.gateway.fill_disk();
        let (status, reasons) = readiness(&bed.gateway).await;
        assert_eq!(status, 503, "{kind:?}");
        assert_eq!(reasons.matches("cannot write").count(), STORES.len(), "{reasons}");
        bed.gateway.free_disk();
        wait_until_ready(&bed.gateway).await;
    }
}
