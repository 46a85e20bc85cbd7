//! Files in and out: the report, sweeps, captures.

use std::fs;
use std::time::Duration;

use pcap_file::pcap::{PcapPacket, PcapWriter};

use super::common::Place;
use super::example;

/// What is there already is replaced if it is a file, and nothing else.
pub(crate) fn pages_replace_nothing_but_files() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let p = Place::new();
    // One that fits a spreadsheet.
    let office = example("copy89-fig10.toml");
    fs::copy(&office, p.here("own.toml")).unwrap();
    fs::create_dir(p.here("directory")).unwrap();
    std::process::Command::new("mkfifo").arg(p.here("pipe")).status().unwrap();
    symlink("nowhere", p.here("dangling")).unwrap();
    symlink("/dev/null", p.here("device")).unwrap();
    for flag in ["--html", "--xlsx"] {
        for there in ["directory", "pipe", "device"] {
            p.run(&["model", &office, flag, there]).expect(1, &[there, "not a regular file"]);
        }
        p.run(&["model", &office, flag, "dangling"]).expect(1, &["dangling", "no such file"]);
        p.run(&["model", "own.toml", flag, "own.toml"]).expect(2, &["own.toml", "the model itself"]);
    }
    assert!(fs::symlink_metadata(p.here("device")).unwrap().is_symlink());
    assert_eq!(fs::read(p.here("own.toml")).unwrap(), fs::read(&office).unwrap());
    fs::write(p.here("page.html"), "old").unwrap();
    fs::set_permissions(p.here("page.html"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("page.html", p.here("link.html")).unwrap();
    p.ok(&["model", &office, "--html", "link.html"]);
    assert!(fs::symlink_metadata(p.here("link.html")).unwrap().is_symlink());
    let page = fs::metadata(p.here("page.html")).unwrap();
    assert!(page.len() > 1000 && page.permissions().mode() & 0o777 == 0o600, "{page:?}");
}

pub(crate) fn html_is_one_file() {
    let p = Place::new();
    let text = p.ok(&["model", &example("office.toml"), "--html", "office.html"]);
    assert!(text.contains("medium"), "the tables are printed, too: {text}");
    let page = fs::read_to_string(p.here("office.html")).unwrap();
    for words in
        ["class=\"topology\"", "What matters most", "copy.1.file", "access point", "# A network for remora model"]
    {
        assert!(page.contains(words), "{words}");
    }
    p.run(&["model", &example("office.toml"), "--html", "no/where.html"]).expect(1, &["no/where.html"]);
}

/// The paper's figure 10 is outside the bands of the formulas.
pub(crate) fn answers_every_figure() {
    let p = Place::new();
    let fig10 = example("copy89-fig10.toml");
    let object = |more: &[&str]| -> serde_json::Value {
        serde_json::from_str(&p.ok(&[&["model", &fig10, "--json"], more].concat())).unwrap()
    };
    let simulated = object(&[]);
    let estimates = [&simulated["flows"][0]["delay_s"], &simulated["copies"][0]["outcome"]];
    for estimate in estimates.into_iter().chain([&simulated["media"][0]["delay_s"]]) {
        assert_eq!(estimate["how"], "simulated", "{estimate}");
        assert!(estimate["half_width_s"].as_f64().is_some() && !estimate["value"].is_null(), "{estimate}");
        assert!(!estimate["outside"].as_array().unwrap().is_empty(), "{estimate}");
    }
    assert_eq!(object(&["--within", "0"])["flows"][0]["delay_s"]["how"], "formula");
    let text = p.ok(&["model", &fig10]);
    assert!(text.starts_with("3 figures: 0 by formula") && text.contains("3 simulated"), "{text}");
    let full = fs::read_to_string(&fig10).unwrap().replace("rate = 1034", "rate = 2000");
    fs::write(p.here("full.toml"), full).unwrap();
    let full = p.ok(&["model", "full.toml"]);
    assert!(full.contains("saturated") && full.contains("no end"), "{full}");
    p.ok(&["model", &fig10, "--html", "page.html"]);
    let page = fs::read_to_string(p.here("page.html")).unwrap();
    assert!(page.contains("3 simulated") && page.contains("+-"), "the page says the same");
}

pub(crate) fn check_judges_random_networks() {
    let p = Place::new();
    let run = p.run(&["model", "--check", "3", "--seed", "8", "--within", "200ms", "--json"]);
    let object: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((&object["all"]["networks"], &object["all"]["unanswered"]), (&3.into(), &0.into()), "{object}");
    let kinds: Vec<&str> = object["kinds"].as_array().unwrap().iter().map(|k| k["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ethernet, delay", "ethernet, copies", "ring, exhaustive, delay"], "none is left out");
    let figures = object["networks"][0]["figures"].as_array().unwrap();
    assert!(figures.iter().all(|f| f["verdict"].is_string() && f["reference"].is_number()), "{figures:?}");
}

pub(crate) fn sweeps() {
    let p = Place::new();
    let fig9 = example("copy89-fig9.toml");
    let object: serde_json::Value =
        serde_json::from_str(&p.ok(&["model", &fig9, "--sweep", "copy.1.window=1..4/4", "--json"])).unwrap();
    assert_eq!(object["input"], "copy.1.window");
    let seconds: Vec<f64> = (0..4)
        .map(|i| object["points"][i]["report"]["copies"][0]["outcome"]["value"]["seconds"].as_f64().unwrap())
        .collect();
    assert!(seconds.windows(2).all(|w| w[1] < w[0]), "a wider window is faster: {seconds:?}");
    let text = p.ok(&["model", &fig9, "--sweep", "flow.1.rate=0..400/3"]);
    let marked: Vec<bool> = text.lines().skip(1).take(3).map(|row| row.contains('[')).collect();
    assert_eq!(marked, [true, false, true], "where the formulas hold nothing is marked: {text}");
    assert!(text.lines().skip(4).any(|line| line.starts_with("  [1] ")), "{text}");
    let few = p.run(&["model", &fig9, "--sweep", "copy.1.window=1..3/5"]);
    few.expect(0, &["copy.1.window is an integer: 3 of 5 values remain"]);
    p.run(&["model", &fig9, "--sweep", "flow.7.rate=0..1/2"]).expect(2, &["flow.7.rate", "flow.1.rate"]);
}

/// A second of a steady sender to a silent receiver, raw IPv4.
fn capture() -> Vec<u8> {
    let header = pcap_file::pcap::PcapHeader { datalink: pcap_file::DataLink::RAW, ..Default::default() };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    let mut packet = [0; 100];
    packet[..20].copy_from_slice(&[0x45, 0, 0, 100, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    for i in 0..=100u64 {
        writer.write_packet(&PcapPacket::new(Duration::from_millis(10 * i), 1000, &packet)).unwrap();
    }
    writer.into_writer()
}

pub(crate) fn calibrates() {
    let p = Place::new();
    fs::write(p.here("a.pcap"), capture()).unwrap();
    let object: serde_json::Value = serde_json::from_str(&p.ok(&["model", "calibrate", "a.pcap", "--json"])).unwrap();
    assert_eq!(object["packets"], 101);
    assert_eq!(object["stations"][0]["name"], "10.0.0.1");
    assert_eq!(object["stations"][0]["mean_bytes"], 1000.0, "what was captured was cut short");
    assert!(p.ok(&["model", "calibrate", "a.pcap"]).contains("10.0.0.1"));
    let [cut, short] = ["400ms", "10s"].map(|bin| ["model", "calibrate", "a.pcap", "--bin", bin, "--json"]);
    let station =
        |line: &[&str]| serde_json::from_str::<serde_json::Value>(&p.ok(line)).unwrap()["stations"][0].clone();
    assert_eq!((&station(&cut)["dispersion"], &station(&cut)["peak_to_mean"]), (&0.0.into(), &1.0.into()));
    assert!(station(&short)["dispersion"].is_null() && station(&short)["peak_to_mean"].is_null());
    let short = p.ok(&short[..5]);
    assert!(short.contains("  -  ") && short.contains("too short for dispersion and peak"), "{short}");
    fs::write(p.here("a.toml"), p.ok(&["model", "calibrate", "a.pcap", "--topology"])).unwrap();
    assert!(p.ok(&["model", "a.toml"]).contains("10.0.0.1 > 10.0.0.2"), "the network's file is one");
}

pub(crate) fn bad_captures_and_flags() {
    let p = Place::new();
    fs::write(p.here("text.pcap"), "not a capture").unwrap();
    fs::write(p.here("cut.pcap"), &capture()[..300]).unwrap();
    fs::write(p.here("empty.pcap"), &capture()[..30]).unwrap();
    p.run(&["model", "calibrate", "text.pcap"]).expect(1, &["text.pcap", "neither pcap nor pcapng"]);
    let cut = p.run(&["model", "calibrate", "cut.pcap", "--json"]);
    cut.expect(0, &["cut.pcap is truncated"]);
    assert!(cut.stdout.contains("\"packets\":2,") && cut.stdout.contains("\"cut_short\":true"), "{cut:?}");
    p.run(&["model", "calibrate", "empty.pcap"]).expect(1, &["empty.pcap", "damaged after packet 0"]);
    p.run(&["model", "calibrate", "none.pcap"]).expect(1, &["none.pcap", "no such file"]);
    let fig9 = example("copy89-fig9.toml");
    p.run(&["model", &fig9, "--html", "x", "--xlsx", "./x"]).expect(2, &["./x is named by both"]);
    assert!(!p.here("x").exists());
    p.run(&["model", "serve", "--listen", "0.0.0.0:0"]).expect(2, &["0.0.0.0:0", "loopback"]);
    fs::write(p.here("bad.toml"), "[[medium]]\nname = \"e\"\ntype = \"ethernet\"\nspeed = \"1Mbit\"\n").unwrap();
    p.run(&["model", "serve", "bad.toml", "--listen", "127.0.0.1:0"]).expect(2, &["bad.toml:4", "speed", "rate"]);
}
