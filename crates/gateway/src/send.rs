//! Sending a plan: patiently where the operator allows it, and once more, changed, where the backend
//! refused the thinking in it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use throughline_canonical::{BlockKey, Fate};
use throughline_codec::dialects::anthropic::refusal::{Refusal, RefusalKind, classify};
use throughline_codec::dialects::anthropic::rewrite::ThinkingEdit;
use throughline_codec::framing::encoding::unpack;

use crate::asked::{Asked, Read, content_encoding};
use crate::backend::Backend;
use crate::gateway::Gateway;
use crate::headers;
use crate::plan::{Again, Plan};
use crate::turn::{Leg, Planned};
use crate::unix_ms;
use crate::upstream::{BoxError, RequestBody, SendError, whole};

/// The longest error that is read; errors are short.
const LONGEST_ERROR: usize = 1 << 20;

/// What came back.
pub(crate) enum Back {
    /// A reply that may begin.
    Good(Response<Incoming>),
    /// An error, read whole.
    Refused(Response<Bytes>),
}

impl Gateway {
    /// Sends a plan; once more, changed, if the backend refused the thinking in it.
    pub(crate) async fn send(
        &self,
        leg: &Leg<'_>,
        planned: Planned,
    ) -> Result<(Back, Planned), SendError> {
        let Leg {
            settings,
            read,
            backend,
            ..
        } = *leg;
        let back = self.send_patiently(read, backend, &planned.plan).await?;
        let Back::Refused(error) = &back else {
            return Ok((back, planned));
        };
        let Some(again) = self.mend(leg, &planned, error) else {
            return Ok((back, planned));
        };
        let mut second = self.plan(settings, read, backend, false, again);
        second.answer.session = planned.answer.session;
        if second.plan.body == planned.plan.body {
            return Ok((back, planned));
        }
        tracing::info!(
            backend = backend.name,
            ?again,
            "sending again without the thinking that was refused"
        );
        self.counters.retried.add(1);
        self.note(leg, &second);
        let back = self.send_patiently(read, backend, &second.plan).await?;
        match &back {
            Back::Good(_) => self.learn_left_out(leg, &planned, &second),
            // It is passed on, but what it tells is kept, so that the next request gets further.
            Back::Refused(error) => {
                self.mend(leg, &second, error);
            }
        }
        Ok((back, second))
    }

    /// Sends, and tries again where the operator allows it for 429 and 5xx.
    async fn send_patiently(
        &self,
        read: &Read,
        backend: &Backend,
        plan: &Plan,
    ) -> Result<Back, SendError> {
        let mut tries = 0;
        loop {
            let back = self.send_once(read, backend, plan).await;
            let (wait, give_up) = match &back {
                Ok(Back::Refused(error)) if worth_another(error.status()) => {
                    (retry_after(error.headers()), false)
                }
                Err(SendError::Unreachable { .. }) => (None, false),
                _ => (None, true),
            };
            if give_up || tries >= backend.retries {
                return back;
            }
            tries += 1;
            // Doubling, with a spread that keeps many callers from coming back together.
            let spread = unix_ms() % 100;
            let backoff = Duration::from_millis((250 << tries.min(6)) + spread);
            tokio::time::sleep(wait.unwrap_or(backoff)).await;
        }
    }

    async fn send_once(
        &self,
        read: &Read,
        backend: &Backend,
        plan: &Plan,
    ) -> Result<Back, SendError> {
        let mut head = headers::upstream(&read.asked.headers, backend, headers::Body::Read);
        headers::patch_betas(&mut head, &plan.betas_added, plan.betas_without_adaptive);
        // An unedited body goes out as it came, compressed or not.
        let body = if plan.body.as_ptr() == read.body.as_ptr() && plan.body.len() == read.body.len()
        {
            read.raw.clone()
        } else {
            head.remove(header::CONTENT_ENCODING);
            plan.body.clone()
        };
        let patience = backend.timeouts.head(read.outline.stream);
        let response = self
            .request(backend, &read.asked, head, whole(body), patience)
            .await?;
        if response.status().is_success() {
            return Ok(Back::Good(response));
        }
        let (head, body) = response.into_parts();
        let idle = backend.timeouts.idle;
        let body = tokio::time::timeout(idle, Limited::new(body, LONGEST_ERROR).collect())
            .await
            .map_err(|_| SendError::TimedOut {
                backend: backend.name.clone(),
                waited: idle,
            })?
            .map_err(|cause| SendError::Unreachable {
                backend: backend.name.clone(),
                cause,
            })?
            .to_bytes();
        Ok(Back::Refused(Response::from_parts(head, body)))
    }

    pub(crate) async fn request(
        &self,
        backend: &Backend,
        asked: &Asked,
        head: HeaderMap,
        body: RequestBody,
        patience: Duration,
    ) -> Result<Response<Incoming>, SendError> {
        let unreachable = |cause: BoxError| SendError::Unreachable {
            backend: backend.name.clone(),
            cause,
        };
        let address = backend
            .address(&asked.path, asked.query.as_deref())
            .map_err(|error| unreachable(error.into()))?;
        let mut request = Request::builder()
            .method(asked.method.clone())
            .uri(address)
            .body(body)
            .map_err(|error| unreachable(error.into()))?;
        *request.headers_mut() = head;
        let sent = backend.client.send(&backend.name, request, patience).await;
        if !matches!(sent, Err(SendError::Caller(_))) {
            self.note_reached(&backend.name, sent.is_ok());
        }
        sent
    }

    /// Learns from a refusal, and says what to do about it; nothing if it is not about thinking, or
    /// if the caller wants it.
    fn mend(&self, leg: &Leg<'_>, planned: &Planned, error: &Response<Bytes>) -> Option<Again> {
        let encoding = content_encoding(error.headers())?;
        let text = unpack(encoding, error.body(), LONGEST_ERROR).ok()?;
        let Refusal { kind, at } = classify(error.status().as_u16(), &text)?;
        let caller = leg
            .read
            .outline
            .thinking
            .as_ref()
            .and_then(|thinking| thinking.binding.as_deref());
        if caller == Some("error") {
            return None;
        }
        let plan = &planned.plan;
        let named = at.and_then(|(message, index)| plan.sent_at(message, index));
        let named = named.map(|at| &plan.blocks[at]);
        let tried = plan.keys(Fate::Tried);
        let a_try_failed = !tried.is_empty() && named.is_none_or(|block| block.fate == Fate::Tried);
        if kind == RefusalKind::Bound {
            self.learn_binding(&leg.backend.name);
        }
        match kind {
            RefusalKind::Signature | RefusalKind::Bound if a_try_failed => {
                self.learn_refused(leg, planned, &tried);
                Some(Again::WithoutTried)
            }
            RefusalKind::Signature => {
                let named: Vec<_> = named.and_then(|block| block.key).into_iter().collect();
                self.learn_refused(leg, planned, &named);
                Some(Again::WithoutOld)
            }
            RefusalKind::Bound => {
                (caller.is_none() && !plan.drop_bound).then_some(Again::DropBound)
            }
            RefusalKind::MissingThinking => {
                // Ours to mend if thinking stayed behind now, or in an earlier round of a loop
                // that began with it. A loop the caller sent without any is the caller's.
                let turn = leg.read.outline.after_last_user_turn();
                let ours = plan
                    .blocks
                    .iter()
                    .any(|block| block.fate == Fate::LeftOut || block.message >= turn);
                (ours && plan.thinking != ThinkingEdit::Disabled).then_some(Again::ThinkingOff)
            }
        }
    }

    /// The backend does not read these blocks.
    fn learn_refused(&self, leg: &Leg<'_>, planned: &Planned, refused: &[BlockKey]) {
        if leg.read.counts && !refused.is_empty() {
            let session = planned.answer.session;
            self.memory.refused(
                leg.read.lineage,
                session,
                &planned.target,
                refused,
                unix_ms(),
            );
        }
    }

    /// The backend took the second try: what had to stay behind for it is foreign there.
    fn learn_left_out(&self, leg: &Leg<'_>, first: &Planned, second: &Planned) {
        let left_out: Vec<_> = first
            .plan
            .blocks
            .iter()
            .zip(&second.plan.blocks)
            .filter(|(before, after)| before.in_body && !after.in_body)
            .filter_map(|(before, _)| before.key)
            .collect();
        self.learn_refused(leg, first, &left_out);
    }
}

pub(crate) fn worth_another(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error()
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let wait = number("retry-after-ms")
        .map(Duration::from_millis)
        .or_else(|| number("retry-after").map(Duration::from_secs))?;
    // A caller is waiting; longer pauses are its own decision.
    (wait <= Duration::from_secs(30)).then_some(wait)
}
