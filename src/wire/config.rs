//! `gateway.config` and `gateway.reload`: read the settings in force, and reload them.

use super::method::no_params;
pub use crate::contract::control::{EffectiveSettings as Config, Reloaded, Setting, SettingChange};

no_params! {
    /// Parameters of `gateway.config`.
    GetConfig
    /// Parameters of `gateway.reload`.
    ReloadConfig
}
