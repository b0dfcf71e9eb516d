//! `abide tokens`: creates, lists and revokes access tokens of users.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::answer::find_open;
use crate::cli::common::Common;
use crate::cli::common::failure::Failure;
use crate::cli::link;
use crate::cli::link::DaemonLink;
use crate::cli::output::print;
use crate::cli::output::text::{TextTable, age, clean, short};
use crate::clock::Clock;
use crate::kernel::ids::TokenId;
use crate::kernel::scope::{Scope, ScopeSet};
use crate::kernel::time::Timestamp;
use crate::wire::input::{PAGE_LIMIT, PageSize};
use crate::wire::tokens::{
    CreateToken, ListTokens, RevokeToken, Token, TokenLifetime, TokenLimits, Tokens,
};

/// Create, list and revoke access tokens of users
///
/// A token lets its holder call the daemon over TCP as a user of an org, within its scopes: read,
/// run, approve, node, admin. Orgs do not see each other's sessions, runs and other objects.
#[derive(Debug, Args)]
#[command(after_help = "abide tokens
abide tokens create --user ann --scope read,run --expires 30d --label laptop
abide tokens create --user bot --org team --scope read,run --max-open-runs 10
abide tokens revoke 4f2a91c3")]
pub(crate) struct TokensArgs {
    #[command(subcommand)]
    what: Option<TokensCommand>,
}

#[derive(Debug, Subcommand)]
enum TokensCommand {
    /// List tokens, newest first
    List(TokenListArgs),
    /// Create a token and print it; it cannot be shown again
    Create(TokenCreateArgs),
    /// Revoke tokens: they are refused at once, and their connections are closed
    Revoke {
        /// Ids, or their last digits, as the list shows them
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct TokenListArgs {
    /// Only tokens of this org
    #[arg(long, value_name = "NAME")]
    org: Option<String>,
}

#[derive(Debug, Args)]
struct TokenCreateArgs {
    /// User that the holder acts as
    #[arg(long, value_name = "NAME")]
    user: String,

    /// Org of the user [default: your own]
    #[arg(long, value_name = "NAME")]
    org: Option<String>,

    /// Scopes, with commas: read, run, approve, node, admin
    #[arg(long, value_name = "LIST", value_parser = ScopeSet::parse)]
    scope: ScopeSet,

    /// Time until it expires, such as 30d [default: never]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    expires: Option<Duration>,

    /// What it is for
    #[arg(long, value_name = "TEXT")]
    label: Option<String>,

    /// Maximum number of calls per minute
    #[arg(long, value_name = "N")]
    max_calls_per_minute: Option<NonZeroU32>,

    /// Maximum number of simultaneous connections
    #[arg(long, value_name = "N")]
    max_connections: Option<NonZeroU32>,

    /// Maximum number of open runs of the user
    #[arg(long, value_name = "N")]
    max_open_runs: Option<NonZeroU32>,
}

impl TokensArgs {
    pub(crate) async fn run(self, common: &Common) -> Result<u8, Failure> {
        let link = DaemonLink::open(&common.place).await?;
        let all = TokenListArgs { org: None };
        match self.what.unwrap_or(TokensCommand::List(all)) {
            TokensCommand::List(list) => list.run(&link, common).await,
            TokensCommand::Create(create) => create.run(&link, common).await,
            TokensCommand::Revoke { ids } => revoke(&link, common, &ids).await,
        }
    }
}

impl TokenCreateArgs {
    async fn run(self, link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
        let request = CreateToken {
            user: self.user,
            org: self.org,
            label: self.label,
            scopes: self.scope.iter().collect(),
            expires: self.expires.map(TokenLifetime),
            limits: Some(TokenLimits {
                calls_per_minute: self.max_calls_per_minute,
                connections: self.max_connections,
                open_runs: self.max_open_runs,
            }),
        };
        let Some(created) = link.ask_or_print(&request, common).await? else {
            return Ok(0);
        };
        let token = &created.token;
        print::answer(&created.secret)?;
        print::note(&format!(
            "token {} of user {} in org {}: {}. It is not shown again; keep it in a file of mode \
             600 and name that with --token-file",
            short(token.id),
            clean(&token.user),
            clean(&token.org),
            names(&token.scopes),
        ));
        Ok(0)
    }
}

impl TokenListArgs {
    async fn run(self, link: &DaemonLink, common: &Common) -> Result<u8, Failure> {
        let mut request = ListTokens {
            org: self.org,
            limit: PageSize(PAGE_LIMIT),
            cursor: None,
        };
        let raw = link.raw(&request).await?;
        if common.json {
            print::object(&raw)?;
            return Ok(0);
        }
        let mut page: Tokens = link::read(&raw)?;
        let mut tokens = page.tokens;
        while page.next_cursor.is_some() {
            request.cursor = page.next_cursor.take();
            page = link::read(&link.raw(&request).await?)?;
            tokens.append(&mut page.tokens);
        }
        if tokens.is_empty() {
            print::note("no tokens yet: abide tokens create --user NAME --scope read,run");
            return Ok(0);
        }
        print::answer(&table(tokens, Clock::system().now()))?;
        Ok(0)
    }
}

fn table(tokens: Vec<Token>, now: Timestamp) -> String {
    let header = [
        "ID", "STATE", "ORG", "USER", "SCOPES", "CREATED", "EXPIRES", "USED", "LABEL",
    ];
    let mut table = TextTable::new(&header);
    for token in tokens {
        let ago = |at: Timestamp| format!("{} ago", age(at, now));
        table.row(vec![
            short(token.id),
            token.state.to_string(),
            token.org,
            token.user,
            names(&token.scopes),
            ago(token.created_at),
            token
                .expires_at
                .map_or("never".to_owned(), |at| match at > now {
                    true => format!("in {}", age(now, at)),
                    false => ago(at),
                }),
            token.used_at.map_or("never".to_owned(), ago),
            token.label.unwrap_or_default(),
        ]);
    }
    table.lines().join("\n")
}

fn names(scopes: &[Scope]) -> String {
    scopes.iter().copied().collect::<ScopeSet>().to_string()
}

async fn revoke(link: &DaemonLink, common: &Common, wanted: &[String]) -> Result<u8, Failure> {
    let known = match wanted.iter().all(|id| id.parse::<TokenId>().is_ok()) {
        true => Vec::new(),
        false => every(link).await?,
    };
    for one in wanted {
        let id = find_open(&known, one, "token", "abide tokens")?;
        let Some(token) = link.ask_or_print(&RevokeToken { id }, common).await? else {
            continue;
        };
        print::answer(&format!(
            "revoked: {} of user {} in org {}",
            short(token.id),
            clean(&token.user),
            clean(&token.org)
        ))?;
    }
    Ok(0)
}

async fn every(link: &DaemonLink) -> Result<Vec<TokenId>, Failure> {
    let mut request = ListTokens {
        limit: PageSize(PAGE_LIMIT),
        ..ListTokens::default()
    };
    let mut ids = Vec::new();
    loop {
        let page: Tokens = link::read(&link.raw(&request).await?)?;
        ids.extend(page.tokens.iter().map(|token| token.id));
        request.cursor = page.next_cursor;
        if request.cursor.is_none() {
            return Ok(ids);
        }
    }
}
