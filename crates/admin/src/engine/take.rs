//! Puts other proxies' revisions in force, and keeps the edits in memory.
//!
//! A module of `main` without edits follows the configuration in force. A module with edits stays as it is. If the revision has changed the
//! same module, it is behind: it cannot be loaded before CONFIG REBASE has merged both.

use std::sync::Arc;

use model::Config;
use model::config::diff::Sheet;
use model::config::merge::{Prefer, merge};
use model::config::shared::{to_shared_text, with_shared};
use shared_config::{Revision, Standing};

use super::{By, Engine};
use crate::error::AdminError;
use crate::reply::Reply;
use crate::sharing::peers::{self, Descent, Pulled};
use crate::sharing::{Behind, BehindModules, Fetched, differing, made_by};
use crate::store::layout::SHARED_TABLE;
use crate::store::modules::{MODULES, Module};
use crate::store::{rows, standing};

impl Engine {
    /// `CONFIG FOLLOW`: puts the revision read from etcd in force.
    ///
    /// # Errors
    /// This proxy cannot use it; the configuration in force stays.
    pub(crate) fn follow(&mut self, fetched: &Fetched) -> Result<Reply, AdminError> {
        let name = format!("revision {} of the shared configuration", fetched.revision.number);
        let config = with_shared(&fetched.text, &name, &self.runtime()).map_err(AdminError::Config)?;
        let number = self.sharing.as_ref().and_then(|sharing| sharing.standing()).map_or(0, |standing| standing.number);
        let (reply, changed) = self.take(config, &fetched.revision, number)?;
        self.stands_at(&fetched.standing, &changed);
        Ok(reply)
    }

    /// The same with a revision pulled from a peer: the modules that both share.
    ///
    /// # Errors
    /// As those of [`Engine::follow`].
    pub(crate) fn follow_peer(&mut self, pulled: &Pulled) -> Result<Reply, AdminError> {
        let (runtime, revision) = (self.runtime(), &pulled.descent.revision);
        let name = format!("revision {} of {}", revision.number, revision.proxy);
        let theirs = with_shared(&pulled.text, &name, &runtime).map_err(AdminError::Config)?;
        let modules = peers::shared_modules(&runtime).into_iter().filter(|module| pulled.modules.iter().any(|words| words == module.words));
        let config = peers::with_modules(&runtime, &theirs, &modules.collect::<Vec<_>>());
        let number = self.peers.as_ref().and_then(|peers| peers.descent()).map_or(0, |descent| descent.revision.number);
        let (reply, changed) = self.take(config, revision, number)?;
        let saved: Vec<&'static Module> = changed.into_iter().filter(|module| peers::is_saved(&runtime, module.words)).collect();
        self.descends_from(Some(pulled.descent.clone()), &saved);
        Ok(reply)
    }

    /// Puts another proxy's revision in force. Returns the reply and the changed modules. `number` is that of the revision before.
    fn take(&mut self, config: Config, revision: &Revision, number: u64) -> Result<(Reply, Vec<&'static Module>), AdminError> {
        let before = self.runtime();
        let config = Arc::new(config);
        let checked = self.check(&config)?;
        let (old, new) = (Sheet::of(&before), Sheet::of(&config));
        let changed = differing(&old, &new);
        let memory = rows::sheet(&self.store.admin, "main")?;
        let edited: Vec<&str> = differing(&memory, &old).iter().map(|module| module.words).collect();
        let author = made_by(revision);
        if number == 0 && !changed.is_empty() {
            let named: Vec<&str> = changed.iter().map(|module| module.words).collect();
            tracing::info!(
                "shared configuration: revision {} by {author} replaces this proxy's initial configuration in {}",
                revision.number,
                named.join(", ")
            );
        }
        let text = format!("revision {}: {}", revision.number, revision.command);
        let reply = if changed.is_empty() {
            Reply::done()
        } else {
            self.put_in_force(&config, checked, &changed, &By { user: &author, peer: "", text: &text })?
        };
        for module in &changed {
            if edited.contains(&module.words) {
                self.behind.0.entry(module.words).or_insert_with(|| Behind { number, base: Arc::clone(&before) });
            } else {
                self.memory_follows(module, &config)?;
            }
        }
        self.caught_up()?;
        Ok((reply, changed))
    }

    /// Modules of memory that equal the configuration in force are no longer behind.
    ///
    /// # Errors
    /// Memory cannot be read.
    pub(crate) fn caught_up(&mut self) -> Result<(), AdminError> {
        if !self.behind.0.is_empty() {
            let memory = rows::sheet(&self.store.admin, "main")?;
            let still: Vec<&str> = differing(&memory, &Sheet::of(&self.runtime())).iter().map(|module| module.words).collect();
            self.behind.0.retain(|words, _| still.contains(words));
        }
        Ok(())
    }

    /// Updates a module of memory without edits. Local variables stay.
    fn memory_follows(&self, module: &Module, config: &Config) -> Result<(), AdminError> {
        let db = &self.store.admin;
        rows::transaction(db, || rows::write_shared(db, "main", &[module.part], config))
    }

    /// This revision is in force: it is kept on disk, where these modules are brought up to date.
    pub(crate) fn stands_at(&mut self, standing: &Standing, changed: &[&'static Module]) {
        let Some(sharing) = self.sharing.clone() else { return };
        self.keep_revision(standing, None, &to_shared_text(&self.runtime()), changed);
        sharing.stands_at(standing.clone());
    }

    /// The same among peers; None where there is no revision of theirs.
    pub(crate) fn descends_from(&mut self, descent: Option<Descent>, changed: &[&'static Module]) {
        let (Some(peers), runtime) = (self.peers.clone(), self.runtime()) else { return };
        if let Some(descent) = &descent {
            let Revision { number, id, sha256, .. } = descent.revision.clone();
            let standing = Standing { number, id, sha256, ..Standing::default() };
            self.keep_revision(&standing, Some(descent), &peers::text_of(&runtime), changed);
        }
        peers.stands_at(descent, &runtime);
    }

    fn keep_revision(&self, standing: &Standing, descent: Option<&Descent>, text: &str, changed: &[&'static Module]) {
        let (db, runtime) = (&self.store.admin, self.runtime());
        let parts: Vec<_> = changed.iter().map(|module| module.part).collect();
        let kept = rows::transaction(db, || {
            rows::write_shared(db, "disk", &parts, &runtime)?;
            standing::keep(db, standing, descent, text)
        });
        if let Err(error) = kept {
            // A restart would begin with an older revision, and get this one again from etcd or a peer.
            tracing::error!("cannot save revision {} of the shared configuration on disk: {error}", standing.number);
        }
    }

    /// From now on the configuration in force is no revision of the shared one.
    pub(crate) fn stands_nowhere(&mut self) {
        self.behind = BehindModules::default();
        if let Err(error) = self.store.admin.execute(&format!("DELETE FROM disk.{SHARED_TABLE}"), []) {
            tracing::warn!("cannot delete the revision of the shared configuration from disk: {error}");
        }
        self.sharing.iter().for_each(|sharing| sharing.stands_nowhere());
        let runtime = self.runtime();
        self.peers.iter().for_each(|peers| peers.stands_at(None, &runtime));
    }

    /// `CONFIG REBASE`: lays the edits of memory over the configuration in force. Returns the modules concerned.
    ///
    /// # Errors
    /// Rows that both have changed.
    pub(crate) fn rebase(&mut self, prefer: Prefer) -> Result<Vec<&'static str>, AdminError> {
        let (db, runtime) = (&self.store.admin, self.runtime());
        let behind = self.behind.0.clone();
        let modules: Vec<(&'static Module, &Behind)> =
            MODULES.iter().filter_map(|module| Some((module, behind.get(module.words)?))).collect();
        let mut conflicts = Vec::new();
        let mut merged = Vec::new();
        for (module, behind) in &modules {
            let memory = rows::read(db, "main", &[module.part], &runtime)?;
            let variables: Vec<&str> = module.part.variables.into_iter().collect();
            match merge(&behind.base, &memory, &runtime, module.part.tables, &variables, prefer) {
                Ok(config) => merged.push((module.part, config)),
                Err(found) => conflicts.extend(found),
            }
        }
        if !conflicts.is_empty() {
            let named: Vec<&str> = conflicts.iter().take(5).map(String::as_str).collect();
            let rest = if conflicts.len() > 5 { ", ..." } else { "" };
            return Err(AdminError::Refused(format!(
                "{} rows were changed here and on other proxies: {}{rest}. Nothing was changed. CONFIG REBASE MINE keeps your rows, \
                 CONFIG REBASE SHARED takes the other rows",
                conflicts.len(),
                named.join("; ")
            )));
        }
        rows::transaction(db, || merged.iter().try_for_each(|(part, config)| rows::write(db, "main", &[*part], config)))?;
        self.behind.0.clear();
        Ok(modules.into_iter().map(|(module, _)| module.words).collect())
    }
}
