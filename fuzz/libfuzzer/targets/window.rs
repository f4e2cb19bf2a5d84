#![no_main]

use noderotation_fuzz::targets::Target;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    Target::Window.feed(bytes);
});
