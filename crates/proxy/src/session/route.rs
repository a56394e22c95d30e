//! Where a statement goes and how it is run: query rules, comments, the firewall, the read/write split.
//!
//! [`decide`](Router::decide) is asked before each statement, and changes nothing but memories. Its [`Decision`] is carried out by
//! [`follow`](Session::follow), which leaves [`Directions`] for later steps and returns [`Directed`]. What is pinned by a transaction
//! or its like stays where it is, whatever was decided; other pins keep a connection, not statements ([`super::backends`]). With a
//! read/write split, what only changes the session does not wait for a writer.

use super::Session;
use super::backends::Backends;
use super::causal::token::{WRONG_VALUE, fault_of_gtids};
use super::command::Incoming;
use super::command_sql::quoted;
use super::door::door;
use super::end::End;
use super::frontend::Frontend;
use super::hand::AtHand;
use super::statements::{ClientStatement, Original};
use crate::hostgroups::choice::Needs;
use crate::mirror::MirrorWish;
use crate::workers::counters::{add, count};
use crate::workers::in_force::InForce;
use meter::digest::{Digest, Judged};
use model::HostgroupId;
use model::snapshot::{ReadWriteSplit, RuleMultiplex};
use routing::{Decider, Request, Route, SessionFacts, Side, Transaction, Verdict};
use session_state::pins::{PinReason, WISHES};
use session_state::state::Text;
use session_state::wants::Wants;
use sql::{Analysis, Facts, Kind};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use wire::codes;
use wire::flags::StatusFlags;

/// How the statement at hand is run, beside where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Directions {
    /// How often it may be sent again; None leaves it to the settings.
    pub retries: Option<u16>,
    /// What becomes of multiplexing.
    pub multiplex: Option<RuleMultiplex>,
    /// Whether it is written to the query log; None leaves it to the settings.
    pub log: Option<bool>,
    /// How long its result may be cached, ms.
    pub cache_ttl_ms: Option<NonZeroU32>,
    /// Whether an empty result may be cached.
    pub cache_empty_result: Option<bool>,
    /// What it asks of the server that it goes to.
    pub needs: Needs,
    /// A hostgroup whose last write by this session its server must have.
    pub gtid_from: Option<HostgroupId>,
    /// Whether a copy of it runs elsewhere too.
    pub mirror: Option<MirrorWish>,
    /// It runs with autocommit on, though the session has it off.
    pub alone: bool,
    /// The writers of the read/write split that sends it to readers.
    pub writer: Option<HostgroupId>,
    /// The rule that matched last.
    pub rule: Option<NonZeroU32>,
}

/// What was decided.
pub(super) struct Decision {
    hostgroup: HostgroupId,
    /// Whether it ends a transaction that only reads, and that nothing was left in.
    commits_first: bool,
    /// User variables to bring there: their names, where they can be read.
    brings: Option<Option<Vec<String>>>,
    directions: Directions,
    route: Option<Box<Route>>,
}

/// What is left to do with a statement.
pub(super) enum Directed {
    /// Run it. The text is the one to send instead, if a rule rewrote it.
    Run(Option<Arc<[u8]>>),
    /// Nothing: it was answered.
    Answered,
}

/// Which command carries the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextCommand {
    /// COM_QUERY.
    Query,
    /// COM_STMT_PREPARE, whose answer cannot be a plain OK.
    Prepare,
    /// COM_STMT_EXECUTE: the text was rewritten when it was prepared.
    Execution,
    /// The same, and it opens a cursor, which keeps the session where it is.
    Cursor,
}

/// What is known of a prepared statement beside the text that servers have.
#[derive(Clone, Copy)]
struct PreparedText<'a> {
    /// What the client prepared, where that is another text.
    original: Option<&'a Original>,
    /// The schema that it was prepared in.
    schema: Option<&'a [u8]>,
}

/// What is to be routed.
#[derive(Clone, Copy)]
pub(super) struct StatementText<'a> {
    pub text: &'a [u8],
    pub analysis: &'a Analysis,
    pub phase: TextCommand,
}

impl<'a> PreparedText<'a> {
    fn of(statement: &'a ClientStatement) -> Self {
        Self { original: statement.original.as_deref(), schema: statement.key.schema.as_deref() }
    }
}

/// How the rules are asked, beside for what.
#[derive(Clone, Copy)]
pub(super) struct RulesInput<'a> {
    /// Where they begin.
    pub flag_in: u32,
    /// The statement's first comment, if it counts.
    pub comment: Option<&'a [u8]>,
    /// The schema in which it runs.
    pub schema: &'a [u8],
}

impl Session {
    /// Decides for a COM_QUERY or COM_STMT_PREPARE, and does what was decided up to running it. Returns the client's own text too if
    /// a rule rewrote it for a PREPARE.
    pub(super) async fn direct(
        &mut self,
        command: Incoming,
        start: usize,
        analysis: &Analysis,
        phase: TextCommand,
    ) -> Result<Option<(Incoming, Analysis, Option<Text>)>, End> {
        let in_force = self.worker.in_force();
        let statement = StatementText { text: self.client.sql_text(command, start), analysis, phase };
        let decision = self.router().decide_timed(&in_force, statement, None);
        match self.follow(&in_force, decision, phase).await? {
            Directed::Answered => Ok(None),
            Directed::Run(None) => Ok(Some((command, *analysis, None))),
            Directed::Run(Some(text)) => {
                let original = (phase == TextCommand::Prepare).then(|| self.client.sql_text(command, start).into());
                let command = self.client.replace_text(command, start, &text);
                Ok(Some((command, self.worker.analyze(&text, self.wants.lex), original)))
            }
        }
    }

    /// The same for an execution of this statement; false when it was answered.
    pub(super) async fn direct_execution(&mut self, id: u32, phase: TextCommand) -> Result<bool, End> {
        let in_force = self.worker.in_force();
        let Some(decision) = self.decide_execution(&in_force, id, phase) else { return Ok(true) };
        Ok(matches!(self.follow(&in_force, decision, phase).await?, Directed::Run(_)))
    }

    fn decide_execution(&self, in_force: &InForce, id: u32, phase: TextCommand) -> Option<Decision> {
        let statement = self.statements.get(id)?;
        let asked = StatementText { text: &statement.key.text, analysis: &statement.analysis, phase };
        Some(self.router().decide_timed(in_force, asked, Some(PreparedText::of(statement))))
    }

    /// What comes ahead of an execution goes where that will.
    pub(super) async fn travel_ahead(&mut self, id: u32) {
        let in_force = self.worker.in_force();
        if let Some(decision) = self.decide_execution(&in_force, id, TextCommand::Execution) {
            self.door().travel(decision.hostgroup).await;
        }
    }

    /// Decides for a command that stands for this statement; false when the client was answered. The command is sent as it came, so a
    /// rule that rewrites the statement has no effect on it.
    pub(super) async fn direct_command(&mut self, sql: &[u8]) -> Result<bool, End> {
        let in_force = self.worker.in_force();
        let analysis = self.worker.analyze(sql, self.wants.lex);
        let statement = StatementText { text: sql, analysis: &analysis, phase: TextCommand::Query };
        let decision = self.router().decide_timed(&in_force, statement, None);
        Ok(matches!(self.follow(&in_force, decision, TextCommand::Query).await?, Directed::Run(_)))
    }

    /// As [`AtHand::direct_home`], for a schema that is entered by a command or at the login: to where a `USE` of it goes.
    pub(super) async fn direct_for_schema(&mut self, schema: &[u8]) {
        let hostgroup = self.router().hostgroup_for_schema(schema);
        self.hand.forget_directions(&self.at);
        self.door().travel(hostgroup).await;
    }

    /// Does what was decided, up to running the statement.
    async fn follow(&mut self, in_force: &InForce, mut decision: Decision, phase: TextCommand) -> Result<Directed, End> {
        if let Some(names) = decision.brings.take() {
            decision.hostgroup = Box::pin(self.effects().bring_variables(names, decision.hostgroup)).await;
        }
        self.hand.directions = decision.directions;
        self.hand.min_gtid = decision.route.as_ref().and_then(|route| route.min_gtid.clone());
        let is_answered = decision.route.as_ref().is_some_and(|route| route.ok_msg.is_some() || route.error_msg.is_some());
        if decision.commits_first && phase != TextCommand::Prepare && !is_answered {
            Box::pin(self.recovery.commit_what_was_read(&mut door!(self), decision.hostgroup)).await;
        }
        self.door().travel(decision.hostgroup).await;
        // Where it is part of what is open, it stays that.
        self.hand.directions.alone &= self.at.pool.shared.id == decision.hostgroup && self.at.may_read_alone();
        match decision.directions.multiplex {
            Some(RuleMultiplex::On) => self.at.pins.end(PinReason::Rule),
            Some(RuleMultiplex::Off | RuleMultiplex::IgnoreVariables) | None => {}
        }
        // A statement waits when it runs, not when it is prepared.
        let delays = phase != TextCommand::Prepare;
        let delay_ms = if delays { self.at.lane.settings().default_query_delay } else { 0 };
        let Some(route) = decision.route else {
            self.handle.set_statement_limit(0);
            return self.delayed(delay_ms, phase, None, None).await;
        };
        self.handle.set_statement_limit(u64::from(route.timeout_ms.unwrap_or(0)));
        if let Some(flag) = route.next_query_flag_in.filter(|_| phase != TextCommand::Prepare) {
            // The next statement is the prepared one's execution, which has not had its own rules yet.
            self.hand.flag_in = flag;
        }
        if let Some(info) = route.ok_msg.as_ref().filter(|_| phase != TextCommand::Prepare) {
            self.client.send_ok_with(&mut self.at, info.as_bytes()).await?;
            return Ok(Directed::Answered);
        }
        if let Some(gtids) = &route.min_gtid
            && let Some(fault) = fault_of_gtids(&self.worker, "min_gtid", gtids, &[decision.hostgroup])
        {
            self.client.send_error(&mut self.at, WRONG_VALUE, "42000", &fault).await?;
            return Ok(Directed::Answered);
        }
        if let Some(text) = &route.error_msg {
            self.client.send_error(&mut self.at, codes::NOT_ALLOWED_COMMAND, "42000", text).await?;
            return Ok(Directed::Answered);
        }
        let rewritten = route.rewritten.filter(|_| !matches!(phase, TextCommand::Execution | TextCommand::Cursor));
        if let Some(text) = &rewritten
            && text.len() as u64 + 1 > in_force.snapshot.vars.max_allowed_packet
        {
            self.client
                .send_error(&mut self.at, codes::NET_PACKET_TOO_LARGE, "08S01", "Got a packet bigger than 'max_allowed_packet' bytes")
                .await?;
            return Ok(Directed::Answered);
        }
        let delay_of_rule = route.delay_ms.filter(|_| delays).unwrap_or(0);
        self.delayed(delay_ms + u64::from(delay_of_rule), phase, route.pace, rewritten).await
    }

    /// Waits as long as rules and settings want, unless the session is killed or the client leaves.
    async fn delayed(
        &mut self,
        delay_ms: u64,
        phase: TextCommand,
        pace: Option<(u32, u32)>,
        rewritten: Option<Arc<[u8]>>,
    ) -> Result<Directed, End> {
        let wait_us = match phase {
            TextCommand::Prepare => 0,
            _ => match self.router().pace_wait_us(pace) {
                Ok(wait_us) => wait_us,
                Err(text) => {
                    Box::pin(self.client.send_error(&mut self.at, codes::USER_LIMIT_REACHED, "42000", &text)).await?;
                    return Ok(Directed::Answered);
                }
            },
        };
        if delay_ms > 0 || wait_us > 0 {
            let mut pause = Box::pin(tokio::time::sleep(Duration::from_micros(delay_ms * 1000 + wait_us)));
            self.handle.begin_delay();
            let waited = Box::pin(self.client.wait(&self.at, |cx| pause.as_mut().poll(cx))).await;
            self.handle.end_delay(self.worker.shared.clock.now_ms());
            if let Err(fault) = waited {
                Box::pin(self.report(fault)).await?;
                return Ok(Directed::Answered);
            }
        }
        Ok(Directed::Run(rewritten))
    }
}

/// Decides where a statement goes and how it is run, by what the session is and where it works.
pub(super) struct Router<'a> {
    pub at: &'a Backends,
    pub client: &'a Frontend,
    pub wants: &'a Wants,
    /// Where rules begin.
    flag_in: u32,
}

impl Session {
    /// The session, as what decides about its statements sees it.
    pub(super) fn router(&self) -> Router<'_> {
        Router { at: &self.at, client: &self.client, wants: &self.wants, flag_in: self.hand.flag_in }
    }
}

impl Router<'_> {
    /// [`Self::decide`], measured if that is wanted, with what is to be brought along.
    fn decide_timed(&self, in_force: &InForce, asked: StatementText<'_>, prepared: Option<PreparedText<'_>>) -> Decision {
        let began_ns = self.at.worker.meter.rules().times_rules.then(|| self.at.worker.shared.clock.now_ns());
        let decision = self.decide(in_force, asked, prepared);
        if let Some(began_ns) = began_ns {
            add(&self.at.worker.counters.rules_ns, self.at.worker.shared.clock.now_ns().saturating_sub(began_ns));
        }
        decision
    }

    /// The user variables that a statement for `hostgroup` takes along; see [`Decision::brings`].
    fn brings(&self, sent: StatementText<'_>, hostgroup: HostgroupId) -> Option<Option<Vec<String>>> {
        self.needs_variables(sent.analysis, hostgroup).then(|| sql::user_variables(sent.text, self.wants.lex))
    }

    /// Where a `USE` of this schema goes.
    pub(super) fn hostgroup_for_schema(&self, schema: &[u8]) -> HostgroupId {
        let in_force = self.at.worker.in_force();
        if in_force.is_plain() {
            return self.at.user.default_hostgroup;
        }
        let text = [b"USE ", quoted(schema).as_slice()].concat();
        let analysis = self.at.worker.analyze(&text, self.wants.lex);
        let statement = StatementText { text: &text, analysis: &analysis, phase: TextCommand::Query };
        self.decide(&in_force, statement, None).hostgroup
    }

    /// Decides for a statement with this text; the rules are told what the client prepared, and where. Changes nothing but memories.
    fn decide(&self, in_force: &InForce, asked: StatementText<'_>, prepared: Option<PreparedText<'_>>) -> Decision {
        let default = self.at.user.default_hostgroup;
        if in_force.is_plain() && !is_pinned_abroad(self.at) {
            return Decision { hostgroup: default, commits_first: false, brings: None, directions: Directions::default(), route: None };
        }
        let StatementText { text, analysis, phase } = asked;
        let commits_first = analysis.kind == Kind::Begin && self.client.may_leave_what_was_read(self.at, self.wants, text);
        let digest = self.at.worker.digest(text, self.wants.lex, analysis);
        let statement = routing::Statement { text, mode: self.wants.lex, analysis: *analysis };
        let schema = prepared.map_or(self.wants.state.schema.as_deref(), |prepared| prepared.schema).unwrap_or_default();
        if phase == TextCommand::Query && routing::precedes_rules(&statement) {
            let known = Judged { digest: &digest, rules: &in_force.digests, sql: text, lex: self.wants.lex };
            // Where the schema is that it enters, not the one that it leaves.
            let entered = if analysis.kind == Kind::Use {
                sql::parse_use(text, self.wants.lex)
                    .map(|name| self.wants.in_utf8(self.at.worker.shared.info.get().as_deref(), self.client.collation, &name))
            } else {
                None
            };
            let input = RulesInput { flag_in: self.flag_in, comment: None, schema: entered.as_deref().unwrap_or(schema) };
            let request = self.request(text, analysis, &known, input);
            let route = in_force.rules.destination(&request, &mut self.at.worker.memo.borrow_mut(), self.at.worker.random.next());
            let (hostgroup, _) = self.destination(in_force, asked, &route);
            return Decision {
                hostgroup,
                commits_first,
                brings: self.brings(asked, hostgroup),
                directions: Directions::default(),
                route: None,
            };
        }
        let original = prepared.and_then(|prepared| prepared.original);
        let (said, known) = original.map_or((text, analysis), |original| (&original.text, &original.analysis));
        let obeys = self.at.user.attributes.comment_directives && known.facts.contains(Facts::COMMENT);
        let comment = if obeys { sql::first_comment(said, self.wants.lex) } else { None };
        let digest_said = original.map(|_| self.at.worker.digest(said, self.wants.lex, known));
        let digest_said = digest_said.as_ref().unwrap_or(&digest);
        let mut route = self.ask_rules(in_force, said, known, digest_said, RulesInput { flag_in: self.flag_in, comment, schema });
        if in_force.snapshot.vars.ignore_min_gtid_annotations {
            route.min_gtid = None;
        }
        if route.is_comment_misread {
            count(&self.at.worker.counters.misread_comments);
        }
        if route.error_msg.as_deref() == Some(routing::DIGEST_TOO_LONG) {
            count(&self.at.worker.counters.digests_too_long);
        }
        if in_force.snapshot.vars.firewall_whitelist_enabled {
            self.ask_firewall(in_force, digest_said, schema, &mut route);
        }
        if comment.is_some() {
            self.drop_unknown_hostgroups(in_force, &mut route);
        }
        // What the server gets is judged; an execution's text was rewritten when it was prepared.
        let rewrites = !matches!(phase, TextCommand::Execution | TextCommand::Cursor);
        let rewritten = route.rewritten.clone().filter(|_| rewrites).map(|text| (self.at.worker.analyze(&text, self.wants.lex), text));
        let sent = rewritten.as_ref().map_or(asked, |(analysis, text)| StatementText { text, analysis, phase });
        let (hostgroup, writer) = self.destination(in_force, sent, &route);
        let directions = Directions {
            retries: route.retries.map(|times| u16::try_from(times).unwrap_or(u16::MAX)),
            multiplex: route.multiplex,
            log: route.log,
            cache_ttl_ms: route.cache_ttl_ms.and_then(NonZeroU32::new),
            cache_empty_result: route.cache_empty_result,
            needs: Needs::of(&route, || crate::workers::clock::unix_us() / 1000),
            gtid_from: route.gtid_from_hostgroup,
            mirror: MirrorWish::of(&route),
            alone: self.reads_alone(in_force, sent, hostgroup),
            writer,
            rule: route.matched.last().copied().and_then(NonZeroU32::new),
        };
        let is_rare = route.error_msg.is_some()
            || route.ok_msg.is_some()
            || route.rewritten.is_some()
            || route.delay_ms.is_some()
            || route.pace.is_some()
            || route.min_gtid.is_some()
            || route.timeout_ms.is_some()
            || route.next_query_flag_in.is_some();
        let brings = self.brings(sent, hostgroup);
        Decision { hostgroup, commits_first, brings, directions, route: is_rare.then(|| Box::new(route)) }
    }

    /// Hostgroups that a comment names and that were never configured: each would stay in memory as long as the process.
    fn drop_unknown_hostgroups(&self, in_force: &InForce, route: &mut Route) {
        let is_unknown = |id: &HostgroupId| !self.at.worker.shared.knows_hostgroup(*id, &in_force.snapshot);
        if route.mirror_hostgroup.take_if(|id| is_unknown(id)).is_some() {
            count(&self.at.worker.counters.misread_comments);
        }
        if route.decider == Decider::Comment
            && let Some(id) = route.destination_hostgroup.take_if(|id| is_unknown(id))
        {
            count(&self.at.worker.counters.misread_comments);
            route.error_msg.get_or_insert_with(|| format!("Tidegate: no hostgroup {id} is configured, which the comment names").into());
        }
    }

    /// Where a statement goes, and the writers of the read/write split that sends it to its readers.
    fn destination(&self, in_force: &InForce, asked: StatementText<'_>, route: &Route) -> (HostgroupId, Option<HostgroupId>) {
        let split = in_force.splits.then(|| routing::split_of(&in_force.snapshot, &self.at.user, route)).flatten();
        let side = split.map(|split| self.side_of(split, in_force, asked, route));
        let meant = side.or(route.destination_hostgroup).unwrap_or(self.at.user.default_hostgroup);
        let drawn_to = self.drawn_to(in_force, asked, meant);
        let hostgroup = self.where_it_begins(in_force, asked, drawn_to).unwrap_or(drawn_to);
        (hostgroup, split.filter(|split| split.reader == hostgroup).map(|split| split.writer))
    }

    /// With autocommit off a statement begins a transaction, and what follows stays where that is. A plain read that a rule sends
    /// elsewhere than home is to be no such beginning (`enforce_autocommit_on_reads`): what comes next may write.
    fn reads_alone(&self, in_force: &InForce, asked: StatementText<'_>, hostgroup: HostgroupId) -> bool {
        self.client.is_autocommit_off()
            && self.at.worker.shared.initial_status().contains(StatusFlags::AUTOCOMMIT)
            && hostgroup != self.at.user.default_hostgroup
            && matches!(asked.phase, TextCommand::Query | TextCommand::Execution)
            && !in_force.snapshot.vars.enforce_autocommit_on_reads
            && is_plain_read(self.wants, self.at, asked.text, asked.analysis)
    }

    /// Where else than in `hostgroup` the transaction begins that a statement is part of because autocommit is off. Where that counts
    /// as an open transaction, or a plain read is to begin one, this is where the rules send a BEGIN. And what cannot run alone
    /// begins none among the readers of a cluster.
    fn where_it_begins(&self, in_force: &InForce, asked: StatementText<'_>, hostgroup: HostgroupId) -> Option<HostgroupId> {
        if !self.client.is_autocommit_off() {
            return None;
        }
        let is_plain_read = || is_plain_read(self.wants, self.at, asked.text, asked.analysis);
        let enforced = || in_force.snapshot.vars.enforce_autocommit_on_reads && is_plain_read();
        if self.at.lane.settings().autocommit_false_is_transaction || enforced() {
            return Some(self.where_begin_goes(in_force));
        }
        let is_home = hostgroup == self.at.user.default_hostgroup;
        if is_home || asked.analysis.kind != Kind::Select || self.reads_alone(in_force, asked, hostgroup) {
            return None;
        }
        in_force.snapshot.roles.iter().find(|group| group.is_beside_writer(hostgroup)).map(|group| group.writer)
    }

    /// Where the rules send a BEGIN.
    fn where_begin_goes(&self, in_force: &InForce) -> HostgroupId {
        const BEGIN: &[u8] = b"BEGIN";
        let analysis = self.at.worker.analyze(BEGIN, self.wants.lex);
        let digest = self.at.worker.digest(BEGIN, self.wants.lex, &analysis);
        let known = Judged { digest: &digest, rules: &in_force.digests, sql: BEGIN, lex: self.wants.lex };
        let asked = RulesInput { flag_in: 0, comment: None, schema: self.wants.state.schema.as_deref().unwrap_or_default() };
        let request = self.request(BEGIN, &analysis, &known, asked);
        let route = in_force.rules.destination(&request, &mut self.at.worker.memo.borrow_mut(), self.at.worker.random.next());
        let split = in_force.splits.then(|| routing::split_of(&in_force.snapshot, &self.at.user, &route)).flatten();
        split.map(|split| split.writer).or(route.destination_hostgroup).unwrap_or(self.at.user.default_hostgroup)
    }

    /// What the rules say of a statement.
    pub(super) fn ask_rules(&self, in_force: &InForce, text: &[u8], analysis: &Analysis, digest: &Digest, asked: RulesInput<'_>) -> Route {
        let known = Judged { digest, rules: &in_force.digests, sql: text, lex: self.wants.lex };
        let request = self.request(text, analysis, &known, asked);
        in_force.rules.route(&request, &mut self.at.worker.memo.borrow_mut(), self.at.worker.random.next())
    }

    fn request<'a>(&'a self, text: &'a [u8], analysis: &Analysis, digest: &'a Judged<'a>, asked: RulesInput<'a>) -> Request<'a> {
        Request {
            user: self.at.user.name.as_bytes(),
            schema: asked.schema,
            client_addr: self.client.addr.as_deref(),
            proxy_addr: &self.client.proxy_addr.0,
            proxy_port: self.client.proxy_addr.1,
            digest_key: digest.key(analysis),
            digest,
            text,
            flag_in: asked.flag_in,
            comment: asked.comment,
        }
    }

    /// Lets the firewall judge the statement: one that it blocks is answered with an error.
    fn ask_firewall(&self, in_force: &InForce, digest: &Digest, schema: &[u8], route: &mut Route) {
        let user = &self.at.user.name;
        let done = match in_force.firewall.judge(user.as_bytes(), self.client.addr.as_deref(), schema, route.final_flag, digest.hash) {
            Verdict::Trusted | Verdict::Listed => return,
            Verdict::Detected => "detected",
            Verdict::Blocked => {
                route.ok_msg = None;
                let text = || in_force.snapshot.vars.firewall_whitelist_errormsg.as_str().into();
                route.error_msg.get_or_insert_with(text);
                "blocked"
            }
        };
        let client = self.client.addr.as_deref().unwrap_or("localhost");
        tracing::warn!("Firewall {done} unknown query with digest {:#018X} from user {user}@{client}", digest.hash);
    }

    /// The side of a read/write split.
    fn side_of(&self, split: ReadWriteSplit, in_force: &InForce, asked: StatementText<'_>, route: &Route) -> HostgroupId {
        let StatementText { text, analysis, phase } = asked;
        if phase == TextCommand::Cursor {
            // What follows until it is closed may write.
            return split.writer;
        }
        let session = SessionFacts {
            transaction: Transaction::None,
            autocommit_off: self.client.is_autocommit_off(),
            pinned: !self.at.pins_in(split.writer).without(WISHES).is_empty(),
        };
        let statement = routing::Statement { text, mode: self.wants.lex, analysis: *analysis };
        match routing::side(&statement, &session, &self.at.user.attributes.safe_functions) {
            Side::Writer if self.wants.only_changes_session(text, analysis) && route.multiplex != Some(RuleMultiplex::Off) => {
                self.for_state(in_force, split)
            }
            Side::Writer | Side::Stay => split.writer,
            Side::Reader if self.is_left_to_writer(in_force, split) => split.writer,
            Side::Reader => split.reader,
        }
    }

    /// Whether a read goes to the writer at once: others waited in vain for a server among the readers, and none takes work since.
    fn is_left_to_writer(&self, in_force: &InForce, split: ReadWriteSplit) -> bool {
        let now_ms = self.at.worker.shared.clock.now_ms();
        let is_left = self.at.worker.pool(split.reader).shared.is_left(now_ms)
            && in_force.snapshot.effective(&self.at.user, split.reader).reads_to_writer_after_ms > 0
            && self.at.worker.pool(split.writer).shared.takes_work(now_ms);
        if is_left {
            count(&self.at.worker.counters.reads_to_writer);
        }
        is_left
    }

    /// Where what only changes the session goes: to the writer; to the reader while no writer takes work and a reader does.
    fn for_state(&self, in_force: &InForce, split: ReadWriteSplit) -> HostgroupId {
        let now_ms = self.at.worker.shared.clock.now_ms();
        let takes_work = |hostgroup| self.at.worker.pool(hostgroup).shared.takes_work(now_ms);
        let may_stay_there = || {
            let settings = in_force.snapshot.effective(&self.at.user, split.reader);
            settings.multiplexing && !settings.autocommit_false_is_transaction
        };
        if !takes_work(split.writer) && takes_work(split.reader) && may_stay_there() { split.reader } else { split.writer }
    }

    /// How long the statement is to wait for its place in time: its user's, and that of the rule `pace`. An error where that is too
    /// long. Counts those that wait and those that are refused.
    fn pace_wait_us(&self, pace: Option<(u32, u32)>) -> Result<u64, String> {
        let (settings, shared) = (self.at.lane.settings(), &self.at.worker.shared);
        let per_second = settings.max_queries_per_second;
        if per_second == 0 && pace.is_none() {
            return Ok(0);
        }
        let (now_us, longest_us) = (shared.clock.now_us(), settings.max_queries_wait_ms * 1000);
        let refused = |whose: String, limit: u64| {
            count(&self.at.worker.counters.pace_refusals);
            format!("{whose} has exceeded the 'max_queries_per_second' resource (current value: {limit})")
        };
        let mut wait_us = 0;
        if per_second > 0 {
            let of_user = shared.user(&self.at.user.name).pace.take(now_us, per_second, longest_us);
            wait_us = of_user.ok_or_else(|| refused(format!("User '{}'", self.at.user.name), per_second))?;
        }
        if let Some((rule, limit)) = pace {
            let of_rule = shared.pace_of_rule(rule).take(now_us, u64::from(limit), longest_us);
            wait_us = wait_us.max(of_rule.ok_or_else(|| refused(format!("Query rule {rule}"), u64::from(limit)))?);
        }
        if wait_us > 0 {
            count(&self.at.worker.counters.paced);
        }
        Ok(wait_us)
    }
}

impl AtHand {
    /// The next statement is run as the settings say.
    fn forget_directions(&mut self, at: &Backends) {
        self.directions = Directions::default();
        self.min_gtid = None;
        at.handle.set_statement_limit(0);
    }

    /// A command that carries no statement goes where the user's statements go that no rule sends elsewhere.
    pub(super) fn direct_home(&mut self, at: &mut Backends) {
        self.forget_directions(at);
        let home = at.user.default_hostgroup;
        at.go_to(home);
    }

    /// True where nothing is configured that decides, delays or paces, and the session left nothing elsewhere: then it is sent home at once.
    pub(super) fn goes_home_undirected(&mut self, at: &mut Backends) -> bool {
        let settings = at.lane.settings();
        let plain = at.worker.in_force().is_plain() && settings.default_query_delay == 0 && settings.max_queries_per_second == 0;
        let plain = plain && !is_pinned_abroad(at);
        if plain {
            self.direct_home(at);
        }
        plain
    }
}

/// Whether the session keeps a backend elsewhere than where the user's statements go that no rule sends anywhere.
fn is_pinned_abroad(at: &Backends) -> bool {
    let is_abroad = at.pool.shared.id != at.user.default_hostgroup;
    at.places.is_some() || is_abroad && !at.pins.set().is_empty()
}

/// Whether it is certain to only read.
pub(super) fn is_plain_read(wants: &Wants, at: &Backends, text: &[u8], analysis: &Analysis) -> bool {
    let statement = routing::Statement { text, mode: wants.lex, analysis: *analysis };
    analysis.kind == Kind::Select && routing::side(&statement, &SessionFacts::default(), &at.user.attributes.safe_functions) == Side::Reader
}

/// The packets of a rewritten command.
pub(super) fn packets_of(payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload.len() + 8);
    wire::packet::put_packet(&mut out, &mut 0, payload);
    out
}

#[cfg(test)]
#[path = "route_tests.rs"]
mod tests;
