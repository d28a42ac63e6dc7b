//! `orion-top`: what the sessions of a node do, live.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser};
use orion_ctl::Place;
use orion_top::app::{App, Sort};
use orion_top::model::{Model, PoolModel, View};
use orion_top::source::{Controller, Record, Recorded, Replay, ask, default_socket};
use orion_top::{screen, svg};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

/// As wide as the table with all its columns.
const WIDTH: u16 = 170;
/// A key is heard within this.
const KEY_INTERVAL: Duration = Duration::from_millis(50);

/// Shows what the sessions of an oriond do, and why each is as slow as it is
///
/// With --controller those of a whole pool, of which each node tells every two seconds.
///
/// Each session has a line that says what the time since the last look was spent on. Keys: s sorts by the next column,
/// r turns the order around, / filters, enter shows one session in depth and esc all of them, p pauses, q ends.
#[derive(Parser)]
#[command(version, name = "orion-top")]
struct Options {
    /// The socket at which oriond tells of its sessions [default: the first that exists of
    /// $XDG_RUNTIME_DIR/orion/oriond.stats.sock, /run/orion/oriond.stats.sock and /tmp/orion-UID/oriond.stats.sock]
    #[arg(long, value_name = "PATH", conflicts_with = "controller")]
    stats: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
    /// Seconds between two looks
    #[arg(short, long, default_value_t = 1.0, value_parser = seconds, value_name = "SECONDS")]
    interval: f64,
    /// Look twice, print what happened in between, and end
    #[arg(long)]
    once: bool,
    /// As one JSON object
    #[arg(long, requires = "once")]
    json: bool,
    /// Write what a screen would show into this file, as a picture (SVG)
    #[arg(long, value_name = "FILE", requires = "once", conflicts_with = "json")]
    svg: Option<PathBuf>,
    /// Keep each look in this file, for --replay
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    record: Option<PathBuf>,
    /// Show what was recorded, in its own time; with --once the last of it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stats", "controller"])]
    replay: Option<PathBuf>,
    /// Sessions with this in their program, place, tenant, container or lease, or of this number or process
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    filter: String,
    /// The column to sort by
    #[arg(long, value_enum, default_value = "waited")]
    sort: Sort,
    /// Show this session in depth
    #[arg(long, value_name = "NUMBER")]
    session: Option<u64>,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse().map_err(|_| "it is no number".to_owned())?;
    if (0.1..=3600.0).contains(&number) { Ok(number) } else { Err("it is between 0.1 and 3600".to_owned()) }
}

fn main() -> ExitCode {
    if let Some(done) = orion_pages::were_asked_for(Options::command) {
        return done;
    }
    let options = Options::parse();
    let outcome = if options.once { once(&options) } else { live(&options) };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("orion-top: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Where reports come from, where they are kept, and what was in the ones before.
struct Source {
    from: From,
    record: Option<Record>,
    interval: Duration,
    model: Model,
    pool: PoolModel,
}

enum From {
    Oriond(PathBuf),
    Pool(Controller),
    Replay(Replay),
}

/// What a look has brought.
enum Look {
    View(View),
    /// The first one says nothing yet.
    Nothing,
    /// Of a recording.
    End,
}

impl Source {
    fn open(options: &Options) -> Result<Source, String> {
        let from = match (&options.replay, &options.place.controller) {
            (Some(path), _) => From::Replay(Replay::open(path)?),
            (None, Some(_)) => From::Pool(Controller::new(options.place.clone())?),
            (None, None) => From::Oriond(options.stats.clone().unwrap_or_else(default_socket)),
        };
        Ok(Source {
            from,
            record: options.record.as_deref().map(Record::create).transpose()?,
            interval: Duration::from_secs_f64(options.interval),
            model: Model::default(),
            pool: PoolModel::default(),
        })
    }

    fn look(&mut self) -> Result<Look, String> {
        let view = match &mut self.from {
            From::Oriond(socket) => {
                let report = ask(socket)?;
                if let Some(record) = &mut self.record {
                    record.keep(&report)?;
                }
                self.model.take(report)
            }
            From::Pool(controller) => {
                let look = controller.ask()?;
                if let Some(record) = &mut self.record {
                    record.keep(&look)?;
                }
                self.pool.take_look(look)
            }
            From::Replay(replay) => match replay.next()? {
                Some(Recorded::OfNode(report)) => self.model.take(report),
                Some(Recorded::OfPool(look)) => self.pool.take_look(look),
                None => return Ok(Look::End),
            },
        };
        Ok(view.map_or(Look::Nothing, Look::View))
    }

    fn is_recording(&self) -> bool {
        matches!(self.from, From::Replay(_))
    }
}

fn once(options: &Options) -> Result<(), String> {
    let mut source = Source::open(options)?;
    let mut app = App::new(options.sort, options.filter.clone(), options.session);
    let (mut looks, mut has_view) = (0, false);
    loop {
        match source.look()? {
            Look::View(view) => (app.view, has_view) = (view, true),
            Look::Nothing => {}
            Look::End if has_view => break,
            Look::End => return Err("the recording has fewer than two looks at one oriond or pool".to_owned()),
        }
        looks += 1;
        // No session of a pool is told of at once: then the second look says so.
        if !source.is_recording() {
            if has_view && looks > 1 {
                break;
            }
            std::thread::sleep(source.interval);
        }
    }
    if let Some(session) = options.session
        && app.row_in_depth().is_none()
    {
        return Err(format!("there is no session {session}"));
    }
    if let Some(path) = &options.svg {
        let svg = svg::picture(&app, WIDTH, screen::height(&app));
        std::fs::write(path, svg).map_err(|e| format!("writing {} failed: {e}", path.display()))?;
    } else if options.json {
        let sessions: Vec<_> = app.rows().into_iter().cloned().collect();
        let view = View { sessions, ..app.view.clone() };
        orion_pages::putln!("{}", serde_json::to_string_pretty(&view).expect("plain data"));
    } else {
        orion_pages::output::put(format_args!("{}", screen::text(&app, WIDTH)));
    }
    Ok(())
}

fn live(options: &Options) -> Result<(), String> {
    let mut source = Source::open(options)?;
    // What cannot be reached at all is said before there is a screen.
    let mut app = App::new(options.sort, options.filter.clone(), options.session);
    match source.look()? {
        Look::View(view) => app.view = view,
        Look::Nothing => {}
        Look::End => return Err("the recording is empty".to_owned()),
    }
    let looker = Looker::start(source)?;
    let mut terminal = ratatui::init();
    let outcome = watch(app, &looker, &mut terminal);
    ratatui::restore();
    outcome
}

/// Looks in a thread of its own: whoever does not answer keeps no key from being heard. It ends with the program.
struct Looker {
    ask: Sender<()>,
    answers: Receiver<Result<Look, String>>,
    interval: Duration,
    is_recording: bool,
}

impl Looker {
    fn start(mut source: Source) -> Result<Looker, String> {
        let (interval, is_recording) = (source.interval, source.is_recording());
        let ((ask, asked), (answer, answers)) = (channel(), channel());
        let look = move || {
            for () in asked {
                if answer.send(source.look()).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("look".into()).spawn(look);
        thread.map_err(|e| format!("starting a thread failed: {e}"))?;
        Ok(Looker { ask, answers, interval, is_recording })
    }
}

fn watch(mut app: App, looker: &Looker, terminal: &mut DefaultTerminal) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("drawing on the terminal failed: {e}");
    let mut next = Instant::now() + looker.interval;
    let mut is_looking = false;
    while !app.is_over {
        terminal.draw(|frame| screen::draw(&app, frame.area(), frame.buffer_mut())).map_err(failed)?;
        let left = if is_looking { KEY_INTERVAL } else { next.saturating_duration_since(Instant::now()) };
        if event::poll(left.min(KEY_INTERVAL)).map_err(failed)? {
            if let Event::Key(key) = event::read().map_err(failed)?
                && key.kind == KeyEventKind::Press
            {
                let is_end = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                app.is_over |= is_end;
                app.pressed(key.code);
            }
            continue;
        }
        if !is_looking && Instant::now() >= next && !app.is_paused {
            next = Instant::now() + looker.interval;
            is_looking = looker.ask.send(()).is_ok();
        }
        let Ok(look) = looker.answers.try_recv() else { continue };
        is_looking = false;
        match look {
            Ok(Look::View(view)) => {
                if looker.is_recording {
                    next = Instant::now() + Duration::from_nanos(view.interval_ns);
                }
                (app.view, app.trouble) = (view, None);
            }
            Ok(Look::Nothing) => {}
            Ok(Look::End) => app.trouble = Some("the recording is over   q quit".to_owned()),
            // oriond may come back.
            Err(why) => app.trouble = Some(why),
        }
    }
    Ok(())
}
