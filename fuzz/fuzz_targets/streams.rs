//! Both provider adapters read any bytes from a model server without a panic, and their output
//! keeps the rules of `abide::provider::stream::checks`. The answer does not depend on how the
//! bytes are split into chunks.

#![no_main]

use abide::config::ProviderKind;
use abide::provider::stream::{checks::carried_out, replay, replay_whole};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for kind in [ProviderKind::OpenAi, ProviderKind::Anthropic] {
        let whole = replay(kind, [bytes.to_vec()]);
        if let Ok(read) = &whole {
            carried_out(read).expect("an answer keeps the rules");
        }
        let size = 1 + usize::from(bytes.first().copied().unwrap_or_default() % 32);
        let cut = replay(kind, bytes.chunks(size).map(<[u8]>::to_vec));
        assert_eq!(cut.map(|read| read.answer), whole.map(|read| read.answer));
        if let Ok(body) = std::str::from_utf8(bytes)
            && let Ok(read) = replay_whole(kind, body)
        {
            carried_out(&read).expect("an answer keeps the rules");
        }
    }
});
