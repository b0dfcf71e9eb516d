//! `abide service` through the real binary, with scripted service managers that really start the
//! installed service.

mod cycle;
mod manager;
mod refusals;
mod upgrade;
