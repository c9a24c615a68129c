//! Calls of webhooks, signed after the scheme of Standard Webhooks: the receiver can check who calls, and
//! that nothing was changed or repeated.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::Sha256;
use throughline_gateway::unix_ms;
use zeroize::Zeroizing;

use super::{HookCall, HookConfig, Verdict};
use crate::projects::ids::new_id;

/// The prefix of secrets in their usual form.
const SECRET_PREFIX: &str = "whsec_";
/// Why a private address is not called.
const PRIVATE: &str = "its address is private, and `hooks.allow_private` is off";
/// The longest answer of a hook.
const MAX_ANSWER: usize = 1 << 20;
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// There is no connection, or it broke.
    #[error("cannot reach the hook: {0}")]
    Unreachable(String),
    /// It took too long.
    #[error("the hook did not answer within {0} ms")]
    TimedOut(u64),
    /// It answered with an error.
    #[error("the hook answered with status {0}")]
    Status(u16),
    /// Its answer cannot be read.
    #[error("the answer of the hook is not valid: {0}")]
    Invalid(String),
}

/// A call that is ready to be sent, as often as needed.
#[derive(Clone, PartialEq, Eq, serde::Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// The id that the receiver sees. It stays the same when the call is repeated.
    pub(crate) id: String,
    pub(crate) hook: String,
    pub(crate) trigger: String,
    pub(crate) url: String,
    pub(crate) secret: String,
    pub(crate) timeout_ms: u64,
    pub(crate) body: String,
    /// Why the last attempt failed.
    #[serde(default)]
    pub(crate) error: Option<String>,
}

impl Prepared {
    pub(crate) fn new(hook: &HookConfig, call: &HookCall) -> Self {
        let at = humantime(unix_ms());
        let trigger = call.trigger.as_str();
        Self {
            id: new_id("msg"),
            hook: hook.id.clone(),
            trigger: trigger.to_owned(),
            url: hook.url.clone(),
            secret: hook.secret.clone(),
            timeout_ms: hook.timeout_ms,
            body: json!({"type": trigger, "timestamp": at, "data": call.data}).to_string(),
            error: None,
        }
    }
}

/// The answer of a blocking hook.
#[derive(Deserialize)]
struct HookAnswer {
    action: Action,
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Action {
    Continue,
    Replace,
    Refuse,
}

/// Calls webhooks.
#[derive(Debug)]
pub(crate) struct Webhooks {
    client: reqwest::Client,
    allow_private: bool,
}

impl Webhooks {
    /// A client that follows no redirects: a hook has one address.
    pub(crate) fn new(allow_private: bool) -> Self {
        // Fails if another part of the process was first, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT);
        if !allow_private {
            client = client.dns_resolver(PublicOnly);
        }
        // Only a broken TLS setup can fail, and the next call says so.
        Self { client: client.build().unwrap_or_default(), allow_private }
    }

    /// Whether a hook may have this address. A name is checked again when it is resolved.
    ///
    /// The type is the one that is sent: it reads `127.1` and `2130706433` as addresses, as browsers do.
    pub(crate) fn may_call(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']');
        let is_local =
            matches!(host, "" | "localhost") || address.parse::<IpAddr>().is_ok_and(is_private);
        self.allow_private || !is_local
    }

    /// Calls a hook, and reads what it decides.
    pub(crate) async fn ask(
        &self,
        hook: &HookConfig,
        call: &HookCall,
    ) -> Result<Verdict, CallError> {
        let body = self.send(&Prepared::new(hook, call)).await?;
        if body.trim_ascii().is_empty() {
            return Ok(Verdict::Continue);
        }
        let answer: HookAnswer = serde_json::from_slice(&body).map_err(|error| {
            let position = format!("line {}, column {}", error.line(), error.column());
            CallError::Invalid(format!("it is no JSON object with `action` ({position})"))
        })?;
        Ok(match answer.action {
            Action::Continue => Verdict::Continue,
            Action::Replace => {
                let missing = || CallError::Invalid("`replace` needs `content`".to_owned());
                Verdict::Replace(answer.content.ok_or_else(missing)?)
            }
            Action::Refuse => {
                Verdict::Refuse(answer.reason.unwrap_or_else(|| "a hook refused it".to_owned()))
            }
        })
    }

    /// Sends a call once. Returns the body of a successful answer.
    pub(crate) async fn send(&self, call: &Prepared) -> Result<Vec<u8>, CallError> {
        let time = Duration::from_millis(call.timeout_ms);
        let sent = tokio::time::timeout(time, self.send_now(call)).await;
        sent.unwrap_or(Err(CallError::TimedOut(call.timeout_ms)))
    }

    async fn send_now(&self, call: &Prepared) -> Result<Vec<u8>, CallError> {
        // The setting may have changed since the hook was added.
        let url = call.url.parse::<Url>().ok().filter(|url| self.may_call(url));
        let Some(url) = url else {
            return Err(CallError::Unreachable(PRIVATE.to_owned()));
        };
        let failed =
            |error: reqwest::Error| CallError::Unreachable(root_cause(&error.without_url()));
        let timestamp = (unix_ms() / 1_000).to_string();
        let signature = signature(&call.secret, &call.id, &timestamp, call.body.as_bytes());
        let request = self
            .client
            .post(url)
            .header("content-type", "application/json")
            .header("webhook-id", &call.id)
            .header("webhook-timestamp", timestamp)
            .header("webhook-signature", signature)
            .body(call.body.clone());
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status().as_u16();
        if !(200..300).contains(&status) {
            return Err(CallError::Status(status));
        }
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(failed)? {
            body.extend_from_slice(&piece);
            if body.len() > MAX_ANSWER {
                return Err(CallError::Invalid(format!("it has more than {MAX_ANSWER} bytes")));
            }
        }
        Ok(body)
    }
}

/// Finds the addresses of names, without private ones.
struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let public: Vec<SocketAddr> = found.filter(|found| !is_private(found.ip())).collect();
            match public.is_empty() {
                true => Err(PRIVATE.into()),
                false => Ok(Box::new(public.into_iter()) as Addrs),
            }
        })
    }
}

/// Whether an address belongs to this machine, its own network or no one, or means another address
/// that may be private.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_private_v4(v4),
        IpAddr::V6(v6) => is_private_v6(v6),
    }
}

fn is_private_v4(address: Ipv4Addr) -> bool {
    let [first, second, third, _] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || match first {
            0 => true,
            // 100.64.0.0/10 is shared by the customers of a provider.
            100 => second & 0xc0 == 64,
            // 192.0.0.0/24 is for protocols, 198.18.0.0/15 for measurements.
            192 => (second, third) == (0, 0),
            198 => second & 0xfe == 18,
            // Multicast, reserved addresses and broadcast.
            _ => first >= 224,
        }
}

fn is_private_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    // `::a.b.c.d`, which includes `::` and `::1`.
    let is_compatible = segments[..6] == [0; 6];
    let is_mapped = address.to_ipv4_mapped().is_some_and(is_private_v4);
    // 64:ff9b::/96 and 64:ff9b:1::/48: a gateway makes an IPv4 address of them.
    let is_translated =
        segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0] || segments[..3] == [0x64, 0xff9b, 1];
    // 2002::/16 and 2001::/32 are tunnels to IPv4 addresses.
    let is_tunnel = segments[0] == 0x2002 || segments[..2] == [0x2001, 0];
    is_compatible
        || is_mapped
        || is_translated
        || is_tunnel
        || segments[0] & 0xffc0 == 0xfec0
        || address.is_multicast()
        || address.is_unique_local()
        || address.is_unicast_link_local()
}

fn root_cause(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// The bytes of a secret: `whsec_` and base64, or any other text as it is.
fn secret_bytes(secret: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(decoded_secret(secret).unwrap_or_else(|| secret.as_bytes().to_vec()))
}

fn decoded_secret(secret: &str) -> Option<Vec<u8>> {
    let text = secret.strip_prefix(SECRET_PREFIX)?;
    BASE64_STANDARD.decode(text).ok().filter(|bytes| !bytes.is_empty())
}

/// Whether a secret can be used. After `whsec_`, it must be base64.
pub(crate) fn is_secret(secret: &str) -> bool {
    match secret.starts_with(SECRET_PREFIX) {
        true => decoded_secret(secret).is_some(),
        false => !secret.is_empty(),
    }
}

/// The value of `webhook-signature`.
pub(crate) fn signature(secret: &str, id: &str, timestamp: &str, body: &[u8]) -> String {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&secret_bytes(secret)) else {
        // A key of any length is accepted.
        return String::new();
    };
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
        mac.update(part);
    }
    format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

/// A time in milliseconds since 1970, as RFC 3339 writes it.
fn humantime(ms: u64) -> String {
    let (seconds, millis) = (ms / 1_000, ms % 1_000);
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    // Years begin in March here, so that the day of the leap year is the last one.
    let day_of_era = days + 719_468;
    let (era, day) = (day_of_era / 146_097, day_of_era % 146_097);
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// What the list of dead calls shows of one.
pub(crate) fn shown(call: &Prepared, attempts: u64) -> Value {
    json!({
        "id": call.id,
        "hook": call.hook,
        "trigger": call.trigger,
        "url": call.url,
        "attempts": attempts,
        "error": call.error,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed by hand with another implementation of HMAC.
    #[test]
    fn signature_is_that_of_the_scheme() {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let body = br#"{"test": 2432232314}"#;
        let signed = signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_ne!(signature("other", "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body), signed);
    }

    #[test]
    fn only_secrets_with_the_prefix_are_base64() {
        for (secret, expected) in [
            ("whsec_c2VjcmV0", &b"secret"[..]),
            ("c2VjcmV0", &b"c2VjcmV0"[..]),
            ("any text", &b"any text"[..]),
            ("password", &b"password"[..]),
        ] {
            assert_eq!(&**secret_bytes(secret), expected, "{secret}");
            assert!(is_secret(secret), "{secret}");
        }
        for wrong in ["", "whsec_", "whsec_not base64"] {
            assert!(!is_secret(wrong), "{wrong}");
        }
    }

    #[test]
    fn private_addresses_are_known() {
        let private = [
            "127.0.0.1",
            "10.1.2.3",
            "192.168.0.9",
            "172.16.0.1",
            "169.254.1.1",
            "100.64.0.1",
            "0.0.0.0",
            "::1",
            "fd00::1",
            "fe80::1",
            "::ffff:127.0.0.1",
            "192.0.0.9",
            "198.18.0.1",
            "198.19.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "2002:7f00:1::1",
            "fec0::1",
        ];
        let public = [
            "1.1.1.1",
            "100.128.0.1",
            "172.32.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "2003::1",
            "2606:4700::1111",
        ];
        for (addresses, expected) in [(&private[..], true), (&public[..], false)] {
            for address in addresses {
                assert_eq!(is_private(address.parse().unwrap()), expected, "{address}");
            }
        }
        let guarded = Webhooks::new(false);
        let open = Webhooks::new(true);
        for url in [
            "http://localhost:1/x",
            "http://127.0.0.1/",
            "https://[::1]:8/",
            "http://2852039166/",
            "http://127.1/",
            "http://0x7f000001/",
            "http://0177.0.0.1/",
            "http://%31%32%37.0.0.1/",
            "http://[::ffff:7f00:1]/",
        ] {
            let url = url.parse().unwrap();
            assert!(!guarded.may_call(&url) && open.may_call(&url), "{url}");
        }
        assert!(guarded.may_call(&"https://hooks.example/".parse().unwrap()));
    }

    #[test]
    fn times_are_written_as_rfc_3339() {
        for (ms, expected) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_123, "2000-02-29T00:00:00.123Z"),
            (1_735_689_599_999, "2024-12-31T23:59:59.999Z"),
            (1_790_000_000_000, "2026-09-21T14:13:20.000Z"),
        ] {
            assert_eq!(humantime(ms), expected);
        }
    }
}
