//! The translate lane: adapts the canonical request to one backend and writes it in its dialect.
//! Sending and the reply are in `translated_reply`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::Value;
use throughline_canonical::{
    Amount, Block, CacheBreakpoints, Fault, Loss, LossReason, LossSubject, Lossy, Message, Prefix,
    Request, Role, Show, ThinkingSetting, Tool, ToolChoice,
};
use throughline_codec::dialects::profile::{BlockRules, MessageOrder, Profile};
use throughline_codec::dialects::{
    self, Accepted, ClientDialect, Operation, Outgoing, ReplyIdentity, ReplyReader, ReplyWriter,
    UpstreamDialect,
};
use throughline_codec::text::{Delivery, Evidence, Options, RawTextReader, Recipe, Stage, Tools};

use crate::backend::{Backend, Cache};
use crate::catalog::{Form, Model, Shows};
use crate::gateway::Gateway;
use crate::history::adapt::{AdaptedHistory, HistoryRules, SentPart, open_turn, replays_from};
use crate::history::client_paths::ClientPaths;
use crate::history::normalize::{
    dedupe_tool_results, ensure_user_message, join_turns, results_follow_calls,
};
use crate::history::prefix_guard::{GuardResult, PrefixGuard, record_prefixes};
use crate::history::recall::{ClientKeys, Recall, is_thinking};
use crate::history::replay_table::Position;
use crate::history::turn_position::{RepeatedTexts, TurnPosition, TurnPositions};
use crate::plan::cache_breakpoints::{BREAKPOINTS_OFF, KeptBreakpoints, automatic};
use crate::plan::translated_reply::identity;
use crate::plan::{Decision, Lane, strict_settings, thinking_setting};
use crate::relay::call_ids::CallIds;
use crate::relay::custom_tools::CustomTools;
use crate::relay::tool_names::ToolNames;
use crate::settings::ToolThinking;
use crate::thinking::guard::Guard;
use crate::thinking::memory::{Question, TargetIdentity};
use crate::thinking::random;
use crate::turn::Attempt;
use crate::turn::log::BlockRecord;
use crate::unix_ms;
use crate::upstream::refusal_policy::RetryPlan;

/// A request, translated for one backend. Many fields: the reply needs most of them again.
#[derive(Debug)]
pub(crate) struct TranslatedPlan {
    pub(crate) decision: Decision,
    /// The client's request, for the reply writer.
    pub(crate) accepted: Arc<Accepted>,
    /// The request, without its body.
    pub(crate) outgoing: Outgoing,
    pub(crate) body: Bytes,
    /// Whether the backend itself counts tokens, if the client asked for a count.
    pub(crate) counted: bool,
    pub(crate) blocks: Vec<BlockRecord>,
    pub(crate) thinking: ThinkingSetting,
    /// Whether the model is known to show summaries of its thinking.
    pub(crate) summarizes: bool,
    /// The signed parts that are sent, in order.
    pub(crate) sent: Vec<SentPart>,
    /// The prefix that the reply will follow, if prefixes matter.
    pub(crate) prefix: Option<Prefix>,
    /// Whether the provider is asked to drop bound blocks.
    pub(crate) drop_bound: bool,
    /// Whether the request continues from a reply that the provider has stored.
    pub(crate) continues: bool,
    /// The index of the message where the model's present turn begins.
    pub(crate) open: usize,
    /// The position of the reply.
    pub(crate) turn_position: TurnPosition,
    /// Call ids that the reply must not use.
    pub(crate) ids: CallIds,
    /// Custom tools that are sent as functions.
    pub(crate) custom_tools: CustomTools,
    /// Tools that are sent under other names.
    pub(crate) tool_names: ToolNames,
}

impl Gateway {
    /// Translates a request. Each step is one method of [`Draft`].
    pub(crate) async fn translate(
        &self,
        attempt: &Attempt<'_>,
        retry: RetryPlan,
        summaries_as_text: bool,
    ) -> Result<TranslatedPlan, Fault> {
        let mut draft = Draft::new(attempt, retry)?;
        draft.default_thinking();
        if !draft.client.defaults().returns_call_ids {
            let (scope, reader) = (&attempt.request.scope, &attempt.backend.domain);
            self.restore_call_ids(scope, reader, &mut draft.request.messages).await;
        }
        draft.choose_dialect(self);
        draft.keep_breakpoints();
        draft.expand_compactions(self, summaries_as_text)?;
        draft.rewrite_custom_tools();
        let ids = CallIds::new(&draft.request, &random::id());
        draft.normalize();
        draft.adapt_settings();
        let mut past = draft.recall(self).await;
        draft.forget_restored_losses(&past);
        draft.check_content()?;
        let tool_names = draft.rename_tools();
        draft.fill_and_close_loops(&mut past);
        if attempt.request.in_conversation && draft.is_first() {
            self.memory.restored(past.adapted.restored);
        }
        draft.place_breakpoints();
        let (mut written, counted) = draft.write(&past.adapted);
        let result = draft.guard(self, &mut written, &mut past);
        let mut outgoing = draft.finish(written, &mut past.adapted);
        strict_settings::check_state(attempt, &draft.losses)?;
        if attempt.request.operation == Operation::Generate {
            strict_settings::check(attempt, &draft.losses)?;
        }
        let AdaptedHistory { mut blocks, sent, .. } = past.adapted;
        blocks.extend(draft.accepted.left_out.iter().map(BlockRecord::from));
        Ok(TranslatedPlan {
            decision: Decision {
                lane: Lane::Translate,
                dialect: draft.to.dialect,
                profile: draft.to.profile,
                model: draft.to.model,
                losses: draft.losses,
                session: past.session,
                target: past.target,
            },
            accepted: draft.accepted,
            body: std::mem::take(&mut outgoing.body).into(),
            outgoing,
            counted,
            blocks,
            thinking: draft.request.thinking,
            summarizes: draft.to.known.shows == Some(Shows::Summary),
            sent,
            prefix: result.prefix,
            drop_bound: result.asks_provider,
            continues: draft.request.provider_state.previous.is_some(),
            open: past.open,
            turn_position: past.turn_position,
            ids,
            custom_tools: draft.custom_tools,
            tool_names,
        })
    }
}

/// A request on its way from the client's dialect to the backend's.
struct Draft<'a> {
    attempt: &'a Attempt<'a>,
    retry: RetryPlan,
    client: &'static dyn ClientDialect,
    accepted: Arc<Accepted>,
    /// The request that will be sent.
    request: Request,
    losses: Vec<Loss>,
    to: Destination,
    custom_tools: CustomTools,
    /// The breakpoints that the client set.
    kept_breakpoints: KeptBreakpoints,
}

/// What was lost before the request got here.
fn losses_of(accepted: &Accepted) -> Vec<Loss> {
    let mut losses = accepted.losses.clone();
    for reason in accepted.left_out.iter().filter_map(|block| block.reason) {
        Loss::add(&mut losses, Loss::ThinkingOmitted { blocks: 1, reason });
    }
    losses
}

/// The target of a request.
struct Destination {
    dialect: &'static dyn UpstreamDialect,
    profile: &'static Profile,
    /// The model's name at the backend.
    model: String,
    known: Arc<Model>,
}

/// The adapted history of a request.
struct PreparedHistory {
    adapted: AdaptedHistory,
    session: u64,
    target: TargetIdentity,
    /// The index of the message where the model's present turn begins.
    open: usize,
    /// The first message whose thinking is sent back, as configured.
    replays_from: usize,
    /// The position of the reply.
    turn_position: TurnPosition,
}

impl<'a> Draft<'a> {
    fn new(attempt: &'a Attempt<'a>, retry: RetryPlan) -> Result<Self, Fault> {
        let accepted = attempt.request.canonical()?.clone();
        let client = attempt.request.incoming.dialect;
        let model = attempt.backend.model_for(attempt.request.model.as_deref()).to_owned();
        if model.is_empty() {
            let backend = &attempt.backend.name;
            return Err(Fault::invalid(format!(
                "the request names no model, and backend `{backend}` has no `default_model`; set one, or \
                 name the model in the request"
            )));
        }
        let mut request = accepted.request.clone();
        if retry == RetryPlan::WholeHistory || retry.follows_refused_history() {
            // The refused block may be in the provider's copy of the history.
            request.provider_state.previous = None;
        }
        Ok(Self {
            attempt,
            retry,
            client,
            request,
            losses: losses_of(&accepted),
            accepted,
            to: Destination {
                known: attempt.settings.catalog.find_at(&attempt.backend.name, &model),
                model,
                dialect: attempt.backend.dialect,
                profile: attempt.profile(),
            },
            custom_tools: CustomTools::default(),
            kept_breakpoints: KeptBreakpoints::default(),
        })
    }

    fn is_first(&self) -> bool {
        self.retry == RetryPlan::First
    }

    /// Applies the client dialect's defaults if the request does not mention thinking.
    fn default_thinking(&mut self) {
        let (known, thinking) = (&self.to.known, &mut self.request.thinking);
        let client = self.client.defaults();
        let thinks = known.thinking.is_some_and(|form| form != Form::None);
        if thinks && client.thinks && thinking.is_unset() {
            thinking.amount = Some(Amount::On);
        }
        let shows = known.shows.is_some_and(|shows| shows != Shows::Nothing);
        if known.unasked && shows && client.shows_thinking && thinking.is_unset() {
            thinking.show = Some(Show::Summary);
        }
    }

    fn choose_dialect(&mut self, gateway: &Gateway) {
        let backend = self.attempt.backend;
        let (dialect, profile) = dialect_for(backend, &self.request, &self.losses, &self.to.known);
        self.to.profile = gateway.learnt_profile(&backend.name, &self.to.model, dialect, profile);
        self.to.dialect = dialect;
    }

    /// Writes summaries of earlier turns as text, if the backend did not make them.
    fn expand_compactions(&mut self, gateway: &Gateway, as_text: bool) -> Result<(), Fault> {
        let (messages, losses) = (&mut self.request.messages, &mut self.losses);
        let target = (self.to.dialect.name(), as_text);
        gateway.expand_compactions(self.attempt, target, messages, losses)
    }

    /// Remembers the breakpoints that the client set.
    fn keep_breakpoints(&mut self) {
        if self.request.cache_breakpoints.is_empty() {
            return;
        }
        if self.attempt.backend.cache == Cache::Off {
            self.losses.push(BREAKPOINTS_OFF);
            self.request.cache_breakpoints = CacheBreakpoints::default();
        }
        // If the upstream has no breakpoints, their loss is reported when the request is written.
        if self.takes_breakpoints() {
            self.kept_breakpoints = KeptBreakpoints::of(&self.request);
        }
    }

    fn takes_breakpoints(&self) -> bool {
        self.to.profile.cache_breakpoints.taken_by.contain(&self.to.model)
    }

    /// Sets the client's breakpoints where their parts are now, or those that are worth it if the client
    /// set none.
    fn place_breakpoints(&mut self) {
        if !self.takes_breakpoints() {
            return;
        }
        let rules = &self.to.profile.cache_breakpoints;
        self.request.cache_breakpoints =
            self.kept_breakpoints.find(&self.request, rules.most, &mut self.losses);
        let adds_breakpoints = self.kept_breakpoints.is_empty()
            && self.attempt.backend.cache == Cache::Auto
            && self.attempt.request.operation == Operation::Generate
            && rules.needed_by.contain(&self.to.model);
        if adds_breakpoints {
            let dialect = self.to.dialect.name();
            self.request.cache_breakpoints = automatic(&self.request, rules, dialect);
        }
    }

    fn rewrite_custom_tools(&mut self) {
        let dialect = self.to.dialect.name();
        self.custom_tools =
            CustomTools::rewrite(&mut self.request, self.client, dialect, &mut self.losses);
    }

    /// Brings the messages into the order that the dialect accepts.
    fn normalize(&mut self) {
        join_turns(&mut self.request.messages);
        if dedupe_tool_results(&mut self.request.messages) > 0 {
            self.losses.push(Loss::PartOmitted {
                part: LossSubject::ToolResult,
                reason: LossReason::Repeated,
            });
        }
        let in_order = self.to.profile.order == MessageOrder::Turns;
        if !in_order && results_follow_calls(&mut self.request.messages) {
            self.adapted(LossSubject::ToolResult, LossReason::GoesFirst);
        }
        let elsewhere =
            self.request.messages.is_empty() && self.client.name() == self.to.dialect.name();
        if in_order && !elsewhere && ensure_user_message(&mut self.request) {
            self.adapted(LossSubject::SystemMessage, LossReason::UserPart);
        }
    }

    fn adapted(&mut self, setting: LossSubject, reason: LossReason) {
        self.losses.push(Loss::SettingAdapted { setting, reason });
    }

    /// Adapts the settings to what the model accepts.
    fn adapt_settings(&mut self) {
        let losses = thinking_setting::adapt(&mut self.request, &self.to.known, self.to.profile);
        self.losses.extend(losses);
    }

    /// Restores each assistant message as its maker wrote it, and adapts it to this target.
    async fn recall(&mut self, gateway: &Gateway) -> PreparedHistory {
        let (request, first) = (self.attempt.request, self.is_first());
        let target = self.attempt.target(&self.to.known);
        let rules = self.attempt.settings.thinking;
        let client = self.client.defaults();
        let keys = ClientKeys::new(client, &gateway.envelopes);
        let keys = keys.for_turn(request.incoming.private);
        let has_assistant = |message: &Message| message.role == Role::Assistant;
        let answer = gateway.memory.ask(&Question {
            lineage: request.lineage,
            target: &target,
            follows_active_backend: self.attempt.follows_active_backend && first,
            in_conversation: request.in_conversation && first,
            blocks: &keys.of_request(&self.request),
            has_assistant: self.request.messages.iter().any(has_assistant),
            now: unix_ms(),
            rules,
        });
        let recall = Recall {
            gateway,
            target: &target,
            scope: &request.scope,
            lookups: Mutex::default(),
            resumed: Mutex::default(),
            session: answer.session,
            rules,
            same_dialect: self.client.name() == self.to.dialect.name(),
            // The vault holds nothing of a client that keeps its turns.
            asks_vault: !client.keeps_turns,
            keys,
        };
        let open = open_turn(&self.request.messages);
        let replays_from = replays_from(self.attempt.backend.replay, &self.request.messages);
        let history = self.to.history_rules(self.retry, open, replays_from);
        let mut adapted = AdaptedHistory::default();
        let mut verdicts = answer.verdicts.as_slice();
        recall.find_resumed(&self.request.messages).await;
        let repeated = RepeatedTexts::of(&self.request.messages);
        let mut turn_positions = TurnPositions::default();
        let mut paths = ClientPaths::new(request);
        for (at, message) in self.request.messages.iter_mut().enumerate() {
            if message.role != Role::Assistant {
                turn_positions.pass(message);
                continue;
            }
            let turn_position = turn_positions.next();
            turn_positions.pass(message);
            let blocks = message.content.iter().filter(|block| is_thinking(block));
            let sent = blocks.count();
            let (own, rest) = verdicts.split_at(sent.min(verdicts.len()));
            verdicts = rest;
            let is_repeated = repeated.contains(&message.content);
            let content = std::mem::take(&mut message.content);
            let past = recall.message(content, &turn_position, is_repeated, own).await;
            let position = if at >= open { Position::OpenLoop } else { Position::Earlier };
            let reported = adapted.blocks.len();
            message.content = history.message(at, past, position, &mut adapted);
            paths.set_paths(adapted.blocks.get_mut(reported..).unwrap_or_default(), sent);
        }
        PreparedHistory {
            adapted,
            session: answer.session,
            target,
            open,
            replays_from,
            turn_position: turn_positions.next(),
        }
    }

    /// Removes the loss of thinking that came without content and was restored.
    fn forget_restored_losses(&mut self, past: &PreparedHistory) {
        let empty = Loss::of_part(LossSubject::Thinking, LossReason::Empty);
        if past.adapted.restored > 0 {
            self.losses.retain(|loss| *loss != empty);
        }
    }

    /// Refuses a request of which nothing can be sent. The provider's error would be about a request
    /// that the caller never saw.
    fn check_content(&self) -> Result<(), Fault> {
        let dialect = self.to.dialect.name();
        let is_foreign =
            |block: &&Block| matches!(block, Block::Opaque { dialect: of, .. } if of != dialect);
        let blocks = || self.request.messages.iter().flat_map(|message| &message.content);
        let asks_nothing = self.accepted.session.immediate_end().is_some();
        if self.client.name() == dialect
            || asks_nothing
            || !self.request.system.is_empty()
            || blocks().any(|block| !is_foreign(&block))
        {
            return Ok(());
        }
        let backend = &self.attempt.backend.name;
        let kinds: BTreeSet<&str> = blocks()
            .filter_map(|block| match block {
                Block::Opaque { value, .. } => value.get("type").and_then(Value::as_str),
                _ => None,
            })
            .collect();
        let kinds: Vec<String> = kinds.into_iter().map(|kind| format!("`{kind}`")).collect();
        let what = match kinds.as_slice() {
            [] => format!("nothing in it can be sent to backend `{backend}`; add a message"),
            kinds => format!(
                "backend `{backend}` cannot be sent {}, and there is nothing else; add a message",
                kinds.join(", ")
            ),
        };
        let member = self.client.defaults().member(&LossSubject::Message);
        Err(Fault::at(member, what))
    }

    /// Renames tools whose names the provider would refuse, also in the restored history.
    fn rename_tools(&mut self) -> ToolNames {
        ToolNames::rename_for(&mut self.request, self.to.profile.tool_names, &mut self.losses)
    }

    /// Fills empty messages and repairs tool loops that the target would refuse.
    fn fill_and_close_loops(&mut self, past: &mut PreparedHistory) {
        let rules = self.to.history_rules(self.retry, past.open, past.replays_from);
        rules.fill_empty_messages(&mut self.request.messages, &mut past.adapted);
        rules.repair_open_loop(&mut self.request, &mut past.adapted);
    }

    /// Writes the request in the backend's dialect. Also returns whether the backend counts tokens,
    /// if the client asked for a count.
    fn write(&self, adapted: &AdaptedHistory) -> (Lossy<Outgoing>, bool) {
        let for_unsigned = self.to.profile.for_unsigned.filter(|_| adapted.unsigned);
        let target = dialects::Target {
            model: &self.to.model,
            profile: for_unsigned.unwrap_or(self.to.profile),
        };
        let count = match self.attempt.request.operation {
            Operation::CountTokens => self.to.dialect.write_count(&self.request, &target),
            Operation::Generate => None,
        };
        let counted = count.is_some();
        (count.unwrap_or_else(|| self.to.dialect.write_request(&self.request, &target)), counted)
    }

    /// Finds stale blocks. They are dropped, by the provider if it can be asked.
    fn guard(
        &mut self,
        gateway: &Gateway,
        written: &mut Lossy<Outgoing>,
        past: &mut PreparedHistory,
    ) -> GuardResult {
        let adapted = &mut past.adapted;
        let mode = match self.to.profile.blocks {
            BlockRules::Native => gateway.guard(self.attempt.backend, &self.to.known),
            _ => Guard::Off,
        };
        let guard = PrefixGuard { mode, always_ask: self.retry == RetryPlan::DropBound };
        let mut result = guard.check(&written.value.body, adapted);
        if guard.drop_stale(&mut result, self.to.dialect, &mut self.request, adapted) {
            let rules = self.to.history_rules(self.retry, past.open, past.replays_from);
            rules.fill_empty_messages(&mut self.request.messages, adapted);
            self.place_breakpoints();
            (*written, _) = self.write(adapted);
            result.prefix = record_prefixes(&written.value.body, &mut adapted.sent);
        }
        result
    }

    /// Collects the losses of all steps.
    fn finish(&mut self, written: Lossy<Outgoing>, adapted: &mut AdaptedHistory) -> Outgoing {
        adapted.finish_losses();
        self.losses.splice(0..0, std::mem::take(&mut adapted.losses));
        let mut outgoing = written.value;
        let interleaved = self.attempt.settings.thinking.tool_thinking == ToolThinking::Interleaved;
        if interleaved && !self.request.tools.is_empty() {
            self.to.dialect.interleave(&self.request, &mut outgoing);
        }
        for loss in written.losses {
            if !self.losses.contains(&loss) {
                self.losses.push(loss);
            }
        }
        outgoing
    }
}

impl Destination {
    fn history_rules(
        &self,
        retry: RetryPlan,
        open: usize,
        replays_from: usize,
    ) -> HistoryRules<'_> {
        HistoryRules { profile: self.profile, model: &self.known, retry, open, replays_from }
    }
}

/// The dialect for a backend. OpenAI's models show reasoning and take it back only in the Responses
/// dialect, which has the same base URL. The newest models call tools while they think only there.
pub(crate) fn dialect_for(
    backend: &Backend,
    request: &Request,
    losses: &[Loss],
    model: &Model,
) -> (&'static dyn UpstreamDialect, &'static Profile) {
    // A request with members that only the backend's own dialect has stays there.
    let bound = request.extra.contains_key(backend.dialect.name())
        || !request.stop.is_empty()
        || losses.iter().any(|loss| loss.changed_result().is_some());
    // There is no reasoning to show if the model does not think.
    let thinks = request.thinking.is_wanted() && !bound && model.thinking != Some(Form::None);
    let newer = backend.profile.reasoning_dialect.and_then(dialects::upstream);
    if let Some(newer) = newer
        && (thinks || thinking_setting::wants_responses(request, model))
    {
        return (newer, newer.profile(""));
    }
    (backend.dialect, backend.profile)
}

impl TranslatedPlan {
    /// A writer for the reply.
    pub(crate) fn writer(&self, attempt: &Attempt<'_>, id: &str) -> Box<dyn ReplyWriter> {
        self.accepted.reply_writer(&ReplyIdentity {
            model: self.decision.model.clone(),
            reasoning_fields: attempt.settings.reasoning_fields.clone(),
            ..identity(id)
        })
    }

    /// A reader for the reply.
    pub(crate) fn reader(
        &self,
        gateway: &Gateway,
        attempt: &Attempt<'_>,
        streamed: bool,
    ) -> Box<dyn ReplyReader> {
        let target =
            dialects::Target { model: &self.decision.model, profile: self.decision.profile };
        let reader = self.decision.dialect.reply_reader(&target, streamed);
        let delivery = match streamed {
            true => Delivery::Streamed,
            false => Delivery::Whole,
        };
        let shown = matches!(self.thinking.show, Some(Show::Full | Show::Summary));
        let tags = self.decision.profile.thinking_tags;
        if let Some(tags) = tags.filter(|_| shown)
            && let Ok(recipe) = Recipe::named(Some(tags), &[])
        {
            let stage = Stage::new(&recipe, Options::default(), delivery);
            return Box::new(RawTextReader::new(reader, stage));
        }
        if !self.decision.profile.raw_text {
            return reader;
        }
        let raw = &attempt.backend.raw_text;
        let evidence = Evidence {
            family: raw.family.as_deref(),
            model: &self.decision.model,
            thinking: self.thinking.amount.map(|amount| amount != Amount::Off),
        };
        // Unknown families are refused at start-up.
        let Ok(mut recipe) = evidence.recipe() else {
            return reader;
        };
        if self.accepted.request.tool_choice == Some(ToolChoice::None) {
            // Some models write calls although they may not. The client would run them.
            recipe.tools.clear();
        }
        let options = Options {
            tools: tools(&self.accepted.request.tools).map(Arc::new),
            on_error: raw.on_error,
            reasoning_format: raw.reasoning_format,
            ..Options::default()
        };
        let mut stage = Stage::new(&recipe, options, delivery);
        if gateway.learnt.is_separated(&attempt.backend.name, &self.decision.model) {
            stage = stage.expecting_answer();
        }
        Box::new(RawTextReader::new(reader, stage))
    }
}

/// The offered tools, for the reader of calls in text.
fn tools(tools: &[Tool]) -> Option<Tools> {
    let functions: Vec<_> = tools
        .iter()
        .filter_map(|tool| match tool {
            Tool::Function { name, parameters, .. } => {
                Some(serde_json::json!({"name": name, "parameters": parameters}))
            }
            Tool::Opaque { .. } => None,
        })
        .collect();
    Tools::read(serde_json::Value::from(functions).to_string().as_bytes()).ok()
}
