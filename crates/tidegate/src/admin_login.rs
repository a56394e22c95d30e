//! Where the admin port of a running proxy is, and who logs in there: options of the commands that are its clients.

use anyhow::{Context, Result};
use clap::Args;

use ::admin::client::Client;

/// The password's environment variable: every user of the machine can see the command line.
const PASSWORD_VARIABLE: &str = "TIDEGATE_ADMIN_PASSWORD";

/// See the module.
#[derive(Args, Debug, Clone)]
pub(crate) struct AdminLogin {
    /// The admin port: host:port, or the path of a Unix socket, with a `/` in it.
    #[arg(default_value = "127.0.0.1:6032")]
    pub(crate) target: String,
    /// Who logs in; reading is all that is needed.
    #[arg(short = 'u', long, default_value = "stats")]
    user: String,
    /// The password; TIDEGATE_ADMIN_PASSWORD in the environment if not given, else the user's name.
    #[arg(short = 'p', long)]
    password: Option<String>,
}

impl AdminLogin {
    /// Logs in.
    ///
    /// # Errors
    /// The port cannot be reached, or refuses the login.
    pub(crate) fn connect(&self) -> Result<Client> {
        let password = self.password.clone().or_else(|| std::env::var(PASSWORD_VARIABLE).ok());
        let connected = Client::connect(&self.target, &self.user, password.as_deref().unwrap_or(&self.user), None);
        connected.with_context(|| format!("log in as '{}' (-u admin for the administrator)", self.user))
    }
}
