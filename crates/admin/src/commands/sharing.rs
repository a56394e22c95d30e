//! CONFIG, where several proxies share it: SHARE, FOLLOW, REBASE, HISTORY SHARED, ROLLBACK SHARED, ROLLOUT, PROMOTE, ABORT.

use std::sync::Arc;

use model::Config;
use model::config::merge::Prefer;
use model::config::shared::{to_shared_text, with_shared};
use shared_config::{Conflict, Head, Revision, Rollout};

use super::{Answer, Command, done, exact, open, refuse, rows as reply};
use crate::engine::statement::unquoted;
use crate::engine::{Ask, By, Engine, draft};
use crate::error::AdminError;
use crate::reply::Reply;
use crate::sharing::peers::{self, PeerLine};
use crate::sharing::{Fetched, Sharing, described, made_by};
use crate::store::modules::{MODULES, Module, everything};
use crate::store::rows;

const ROLLOUT: &str = "CONFIG ROLLOUT TO 'proxy'[, ...] | n PERCENT";

pub(super) const COMMANDS: &[Command] = &[
    exact("CONFIG SHARE", share).help("CONFIG SHARE", "Makes the configuration of this proxy the shared one.", "CONFIG SHARE"),
    exact("CONFIG FOLLOW", follow).help("CONFIG FOLLOW", "Takes the shared configuration and follows it.", "CONFIG FOLLOW"),
    exact("CONFIG REBASE", |engine, ask| rebase(engine, ask, Prefer::Nobody)).help(
        "CONFIG REBASE",
        "Lays this proxy's edited rows over the newest shared revision. Rows that both changed are named.",
        "CONFIG REBASE",
    ),
    exact("CONFIG REBASE MINE", |engine, ask| rebase(engine, ask, Prefer::Mine)).help(
        "CONFIG REBASE MINE",
        "CONFIG REBASE; where both changed a row, this proxy's row counts.",
        "CONFIG REBASE MINE",
    ),
    exact("CONFIG REBASE SHARED", |engine, ask| rebase(engine, ask, Prefer::Theirs)).help(
        "CONFIG REBASE SHARED",
        "CONFIG REBASE; where both changed a row, the shared row counts.",
        "CONFIG REBASE SHARED",
    ),
    exact("CONFIG REVISION", revision).help(
        "CONFIG REVISION",
        "The shared revision that is in force here, and its state.",
        "CONFIG REVISION",
    ),
    exact("CONFIG REVISION TEXT", revision_text).help("CONFIG REVISION TEXT", "The text of the shared revision.", "CONFIG REVISION TEXT"),
    exact("CONFIG HISTORY SHARED", list).help("CONFIG HISTORY SHARED", "Shared revisions, newest first.", "CONFIG HISTORY SHARED"),
    exact("CONFIG ROLLBACK SHARED *", rollback).help(
        "CONFIG ROLLBACK SHARED n",
        "Makes an earlier shared revision the newest one.",
        "CONFIG ROLLBACK SHARED 12",
    ),
    open("CONFIG ROLLOUT", rollout).help(ROLLOUT, "The next change goes to some proxies first.", "CONFIG ROLLOUT TO 20 PERCENT"),
    exact("CONFIG PROMOTE", promote).help("CONFIG PROMOTE", "Puts a rollout in force on all proxies.", "CONFIG PROMOTE"),
    open("CONFIG ABORT", abort).help("CONFIG ABORT", "Ends a rollout; its proxies return to the shared revision.", "CONFIG ABORT"),
];

/// This proxy's part, where something is shared.
fn sharing(engine: &Engine) -> Result<Arc<Sharing>, AdminError> {
    match &engine.sharing {
        Some(sharing) if Sharing::is_on(&engine.runtime()) => Ok(Arc::clone(sharing)),
        _ => refuse("this proxy does not share its configuration: set admin-shared_config_endpoints"),
    }
}

fn head(sharing: &Sharing) -> Result<Arc<Head>, AdminError> {
    let head = sharing.head()?;
    head.ok_or_else(|| AdminError::Refused("etcd has no shared configuration: CONFIG SHARE puts this proxy's there".to_owned()))
}

/// `CONFIG SHARE`: the configuration in force becomes the shared one, if there is none.
fn share(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    if peers::is_on(&engine.runtime()) {
        return share_with_peers(engine, ask);
    }
    let sharing = sharing(engine)?;
    if let Some(head) = sharing.head()? {
        if let Some((_, why)) = sharing.conflict(&head) {
            return refuse(why);
        }
        return refuse(format!("a shared configuration exists already, at {}", described(&head.manifest)));
    }
    let own = sharing.standing().map_or(0, |standing| standing.number);
    sharing.refuse_newer(own)?;
    let ancestors: Vec<_> = sharing.standing().into_iter().collect();
    let standing = sharing.put(draft(ask, to_shared_text(&engine.runtime())), own + 1, None, &ancestors, None)?;
    tracing::info!("{}@{}: {}: revision {}", ask.session.user, ask.session.peer, ask.statement.text, standing.number);
    let text = format!("revision {} is shared", standing.number);
    engine.stands_at(&standing, &[]);
    Ok(done(0, text))
}

/// The same among peers: the configuration in force becomes the first revision.
fn share_with_peers(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let Some(peers) = engine.peers.clone() else { return refuse("this proxy has no peers") };
    let known = peers.descent().map(|own| ("this proxy".to_owned(), own)).or_else(|| peers.known_revision());
    if let Some((name, descent)) = known {
        return refuse(format!("a shared configuration exists already: {name} has revision {}", peers::described(&descent)));
    }
    engine.descend(&engine.runtime(), ask, &[], &[], true);
    Ok(done(0, "revision 1 is shared"))
}

/// `CONFIG FOLLOW`: puts the revision last read from etcd in force.
fn follow(engine: &mut Engine, _: &Ask<'_>) -> Answer {
    if let Some(joined) = engine.peers.as_ref().and_then(|peers| peers.joined()) {
        engine.descends_from(Some(joined), &[]);
        return Ok(Reply::done());
    }
    if let Some(pulled) = engine.peers.as_ref().and_then(|peers| peers.pulled()) {
        let mine = engine.peers.as_ref().and_then(|peers| peers.descent());
        // A LOAD may have been faster.
        return match peers::relation(mine.as_ref(), Some(&pulled.descent)) {
            peers::Relation::Newer => engine.follow_peer(&pulled),
            _ => Ok(Reply::done()),
        };
    }
    let sharing = sharing(engine)?;
    match sharing.fetched() {
        // A LOAD may have been faster.
        Some(fetched)
            if sharing.standing().is_some_and(|now| now.number >= fetched.revision.number && now.cluster == fetched.standing.cluster) =>
        {
            Ok(Reply::done())
        }
        Some(fetched) => engine.follow(&fetched),
        None => Ok(done(0, "no change waits to be put in force")),
    }
}

/// `CONFIG REBASE [MINE|SHARED]`: first puts the shared configuration in force, then lays memory's edits over it.
fn rebase(engine: &mut Engine, ask: &Ask<'_>, prefer: Prefer) -> Answer {
    engine.refuse_read_only(ask)?;
    if peers::is_on(&engine.runtime()) {
        return rebase_on_peers(engine, ask, prefer);
    }
    let sharing = sharing(engine)?;
    let head = head(&sharing)?;
    let uuid = sharing.me().uuid;
    let wanted = head.manifest.wanted_by(&uuid).clone();
    let mut said = format!("revision {} is in force", wanted.number);
    match (sharing.conflict(&head), prefer) {
        (Some((_, why)), Prefer::Nobody) => return refuse(why),
        (Some((Conflict::Cluster, why)), Prefer::Mine) => {
            return refuse(format!(
                "{why}. To keep this proxy's configuration, delete the keys of this cluster in etcd, then run CONFIG SHARE here"
            ));
        }
        (Some(_), Prefer::Mine) => said = overrule(engine, ask, &sharing, &head)?,
        (None, Prefer::Mine) if sharing.standing().is_some() && sharing.is_behind_others(&head) => {
            said = overrule(engine, ask, &sharing, &head)?
        }
        _ if sharing.standing().is_none_or(|standing| standing.id != wanted.id) => {
            let (text, standing) = (text_of(&sharing, &wanted)?, head.manifest.standing_of(&uuid));
            engine.follow(&Fetched { standing, revision: wanted, text })?;
        }
        _ => {}
    }
    said.push_str(&rebased(&engine.rebase(prefer)?));
    Ok(done(0, said))
}

/// Publishes the configuration in force as the successor of all known revisions, which ends the conflict.
fn overrule(engine: &mut Engine, ask: &Ask<'_>, sharing: &Sharing, head: &Head) -> Result<String, AdminError> {
    let standing = sharing.overrule(draft(ask, to_shared_text(&engine.runtime())), head)?;
    tracing::info!("{}@{}: {}: revision {}", ask.session.user, ask.session.peer, ask.statement.text, standing.number);
    engine.stands_at(&standing, &[]);
    Ok(format!("revision {} is shared with this proxy's configuration and replaces {}", standing.number, described(&head.manifest)))
}

fn rebased(modules: &[&str]) -> String {
    if modules.is_empty() {
        "; memory has no changes of an older revision".to_owned()
    } else {
        format!("; memory still holds your changes of {}: LOAD puts them in force", modules.join(", "))
    }
}

/// The same among peers: first the conflict, if there is one, is decided; then memory.
fn rebase_on_peers(engine: &mut Engine, ask: &Ask<'_>, prefer: Prefer) -> Answer {
    let Some(peers) = engine.peers.clone() else { return refuse("this proxy has no peers") };
    let rivals = peers.rivals();
    match prefer {
        _ if rivals.is_empty() => {}
        Prefer::Nobody => {
            let named: Vec<&str> = rivals.iter().map(|(_, line)| line.name.as_str()).collect();
            return refuse(format!(
                "the configurations of this proxy and of {} have no common history. CONFIG REBASE MINE puts this proxy's in force \
                 everywhere, CONFIG REBASE SHARED takes the other proxy's",
                named.join(", ")
            ));
        }
        Prefer::Mine => {
            let (runtime, theirs) = (engine.runtime(), rivals.into_iter().filter_map(|(_, line)| line.descent).collect::<Vec<_>>());
            engine.descend(&runtime, ask, &theirs, &[], true);
        }
        Prefer::Theirs => {
            let number = |line: &PeerLine| line.descent.as_ref().map_or(0, |one| one.revision.number);
            let Some((at, line)) = rivals.into_iter().max_by_key(|(_, line)| number(line)) else {
                return refuse("no peer has another configuration");
            };
            let pulled = peers.pull_from(&at, line, &engine.runtime()).map_err(AdminError::Refused)?;
            engine.follow_peer(&pulled)?;
        }
    }
    let modules = engine.rebase(prefer)?;
    let now = peers.descent().map_or_else(|| "no revision".to_owned(), |descent| format!("revision {}", peers::described(&descent)));
    Ok(done(0, format!("{now} is in force{}", rebased(&modules))))
}

/// `CONFIG REVISION`: what peers ask each other.
fn revision(engine: &mut Engine, _: &Ask<'_>) -> Answer {
    match engine.peers.as_ref().filter(|_| peers::is_on(&engine.runtime())) {
        Some(peers) => Ok(super::single("revision", serde_json::to_string(&peers.line()).unwrap_or_default())),
        None => {
            refuse("this proxy pulls from no peers: admin-cluster_username or proxysql_servers is empty, or etcd holds the configuration")
        }
    }
}

/// `CONFIG REVISION TEXT`: the text that a peer pulls, with passwords, in pieces.
fn revision_text(engine: &mut Engine, _: &Ask<'_>) -> Answer {
    const PIECE: usize = 256 << 10;
    let text = peers::text_of(&engine.runtime());
    let mut pieces = Vec::new();
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let mut end = rest.len().min(PIECE);
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        let (piece, behind) = rest.split_at(end);
        pieces.push(vec![Some(piece.to_owned())]);
        rest = behind;
    }
    Ok(reply(&["text"], pieces))
}

fn text_of(sharing: &Sharing, revision: &Revision) -> Result<String, AdminError> {
    sharing.shared().text(revision.clone()).map_err(|error| AdminError::Refused(format!("the shared configuration: {error}")))
}

/// The shared configuration as this proxy would use it: the layer SHARED of CONFIG DIFF.
pub(super) fn shared(engine: &Engine) -> Result<Config, AdminError> {
    let sharing = sharing(engine)?;
    let head = head(&sharing)?;
    read(engine, &sharing, &head.manifest.revision)
}

fn read(engine: &Engine, sharing: &Sharing, revision: &Revision) -> Result<Config, AdminError> {
    let name = format!("revision {} of the shared configuration", revision.number);
    with_shared(&text_of(sharing, revision)?, &name, &engine.runtime()).map_err(AdminError::Config)
}

/// `CONFIG HISTORY SHARED`
fn list(engine: &mut Engine, _: &Ask<'_>) -> Answer {
    let sharing = sharing(engine)?;
    let all = sharing.shared().history().map_err(|error| AdminError::Refused(format!("the shared configuration: {error}")))?;
    let line = |manifest: shared_config::Manifest| {
        let (revision, tried) = (manifest.revision, manifest.rollout.map(|rollout| rollout.to.len().to_string()));
        let by = made_by(&revision);
        vec![
            Some(revision.number.to_string()),
            Some(revision.time.to_string()),
            Some(by),
            Some(revision.command),
            tried,
            Some(revision.bytes.to_string()),
        ]
    };
    Ok(reply(&["revision", "time", "by", "command", "tried_by", "bytes"], all.into_iter().map(line).collect()))
}

/// `CONFIG ROLLBACK SHARED n`: a new revision with the content of an old one.
fn rollback(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    engine.refuse_read_only(ask)?;
    let sharing = sharing(engine)?;
    let number = ask.statement.word(3);
    let all = sharing.shared().history().map_err(|error| AdminError::Refused(format!("the shared configuration: {error}")))?;
    let Some(old) = all.into_iter().find(|manifest| manifest.revision.number.to_string() == number) else {
        return refuse(format!("there is no revision '{number}' in CONFIG HISTORY SHARED"));
    };
    let config = read(engine, &sharing, &old.revision)?;
    engine.roll_back(config, ask)
}

/// `CONFIG ROLLOUT TO 'proxy'[, ...]`, `CONFIG ROLLOUT TO n PERCENT`: memory, every module at once, for some proxies first.
fn rollout(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    let sharing = sharing(engine)?;
    let head = head(&sharing)?;
    if head.manifest.rollout.is_some() {
        return refuse(format!(
            "revision {} is already being tried: run CONFIG PROMOTE or CONFIG ABORT first",
            head.manifest.revision.number
        ));
    }
    if sharing.standing().is_none_or(|standing| standing.id != head.manifest.revision.id) {
        return refuse("this proxy does not have the shared revision yet: try again");
    }
    sharing.refuse_ahead(&head)?;
    let named = ask.statement.rest(if ask.statement.is(2, "TO") { 3 } else { 2 });
    let to = chosen(&sharing, named)?;
    let modules: Vec<&'static Module> = MODULES.iter().collect();
    engine.refuse_behind(&modules)?;
    let config = rows::read(&engine.store.admin, "main", &everything(), &engine.runtime())?;
    let config = Arc::new(config);
    let checked = engine.check(&config)?;
    let text = to_shared_text(&config);
    if shared_config::sum(text.as_bytes()) == head.manifest.revision.sha256 {
        return refuse("memory equals the shared configuration: there is nothing to try");
    }
    let is_here = to.contains(&sharing.me().uuid);
    if is_here {
        engine.could_follow(&config, &modules)?;
        if engine.is_elsewhere(&config) {
            return refuse("CONFIG ROLLOUT cannot change the place of the shared configuration. Run LOAD ADMIN VARIABLES TO RUNTIME first");
        }
    }
    let count = to.len();
    let trial = Rollout { to, before: head.manifest.revision.clone() };
    let standing = sharing.put(draft(ask, text), head.manifest.revision.number + 1, Some(&head), &[], Some(trial))?;
    if !is_here {
        sharing.follows_itself();
    } else {
        let by = By { user: &ask.session.user, peer: &ask.session.peer, text: &ask.statement.text };
        engine.put_in_force(&config, checked, &modules, &by).map_err(|why| engine.not_in_force(&standing, &why))?;
        engine.stands_at(&standing, &modules);
    }
    Ok(done(
        0,
        format!("{count} proxies try revision {}: see stats_tidegate_proxies, then run CONFIG PROMOTE or CONFIG ABORT", standing.number),
    ))
}

/// The uuids of those that are named, by name, address or uuid, or of so many of 100.
fn chosen(sharing: &Sharing, named: &str) -> Result<Vec<String>, AdminError> {
    let seen = sharing.seen();
    let mut proxies: Vec<_> = seen.proxies.iter().collect();
    proxies.sort_by(|one, other| (&one.name, &one.uuid).cmp(&(&other.name, &other.uuid)));
    let words: Vec<&str> = named.split_whitespace().collect();
    if let [percent, word] = words[..]
        && word.eq_ignore_ascii_case("PERCENT")
    {
        let percent: usize = match percent.parse() {
            Ok(percent @ 1..=99) => percent,
            _ => return refuse(format!("'{percent}' is not a number from 1 to 99; the command is: {ROLLOUT}")),
        };
        let count = (proxies.len() * percent).div_ceil(100);
        return Ok(proxies.into_iter().take(count).map(|proxy| proxy.uuid.clone()).collect());
    }
    let mut to = Vec::new();
    for name in named.split(',').map(|name| unquoted(name.trim())) {
        let known = proxies.iter().filter(|proxy| proxy.name == name || proxy.uuid == name || proxy.address == name);
        match known.collect::<Vec<_>>()[..] {
            [proxy] if !to.contains(&proxy.uuid) => to.push(proxy.uuid.clone()),
            [_] => {}
            [] => return refuse(format!("'{name}' is not in stats_tidegate_proxies; the command is: {ROLLOUT}")),
            _ => return refuse(format!("several proxies are called '{name}': name them by uuid")),
        }
    }
    if to.len() >= proxies.len() {
        return refuse("these are all proxies: CONFIG APPLY puts memory in force everywhere");
    }
    Ok(to)
}

/// `CONFIG PROMOTE`: the revision on trial holds for all proxies.
fn promote(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    end_trial(engine, ask, |head, _| head.manifest.revision.clone(), "in force everywhere")
}

/// `CONFIG ABORT ['reason']`: the revision before the trial holds again.
fn abort(engine: &mut Engine, ask: &Ask<'_>) -> Answer {
    end_trial(engine, ask, |_, rollout| rollout.before.clone(), "taken back")
}

fn end_trial(engine: &mut Engine, ask: &Ask<'_>, content: fn(&Head, &Rollout) -> Revision, outcome: &str) -> Answer {
    let sharing = sharing(engine)?;
    let head = head(&sharing)?;
    let Some(rollout) = &head.manifest.rollout else {
        return refuse("no revision is being tried: CONFIG ROLLOUT starts a trial");
    };
    let tried = head.manifest.revision.number;
    let text = text_of(&sharing, &content(&head, rollout))?;
    let standing = sharing.put(draft(ask, text), tried + 1, Some(&head), &[], None)?;
    sharing.follows_itself();
    tracing::info!("{}@{}: {}", ask.session.user, ask.session.peer, ask.statement.text);
    // Everybody follows, this proxy too.
    Ok(Reply::Ok {
        affected: 0,
        insert_id: 0,
        info: format!("revision {tried} is {outcome}, as revision {}", standing.number),
        warnings: Vec::new(),
    })
}
