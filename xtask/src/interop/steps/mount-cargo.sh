# cargo build of a small crate: locks, hard links, times, programs that run from the mount.
export PATH="$(dirname "$cargo"):$PATH" CARGO_NET_OFFLINE=true CARGO_TARGET_DIR="$dir/small/target"
mkdir -p small/src
cat > small/Cargo.toml <<END
[package]
name = "small"
version = "0.1.0"
edition = "2021"
END
echo 'mod word; fn main() { println!("{}", word::WORD); }' > small/src/main.rs
echo 'pub const WORD: &str = "one";' > small/src/word.rs
cd small
"$cargo" build --quiet
test "$(target/debug/small)" = one
# Nothing has changed, so nothing is built.
before=$(stat -c %y target/debug/small)
"$cargo" build --quiet
test "$(stat -c %y target/debug/small)" = "$before"
echo 'pub const WORD: &str = "two";' > src/word.rs
"$cargo" build --quiet
test "$(target/debug/small)" = two
"$cargo" clean --quiet
test ! -e target
