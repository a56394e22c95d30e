// Polling: one request in flight for each view, none while the tab is hidden.
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Rec, type Recent, type Sample, type ViewData, type ViewName, ApiError, everyOf, recent, samples, view } from './api';
import { Store, useStore } from './store';
import { num } from './format';

const RETRY_MS = 2_000;
const HOUR_MS = 3_600_000;
/** Counted up by whoever changed something: all views ask again at once. */
export const changed = new Store(0);
export const refresh = (): void => changed.set(changed.get() + 1);

/** Calls `work` again and again, `every` ms after its last answer, until the returned function is called. */
function poll(work: () => Promise<void>, every: number): () => void {
  let timer = 0;
  let busy = false;
  let over = false;
  const next = (ms: number) => { window.clearTimeout(timer); timer = window.setTimeout(turn, ms); };
  async function turn(): Promise<void> {
    if (over || busy || document.hidden) return;
    busy = true;
    let wait = every;
    try { await work(); } catch (error) { wait = error instanceof ApiError && error.status === 0 ? RETRY_MS : Math.max(every, RETRY_MS); }
    busy = false;
    if (!over) next(wait);
  }
  const wake = () => next(0);
  document.addEventListener('visibilitychange', wake);
  const unfollow = changed.follow(wake);
  wake();
  return () => {
    over = true;
    window.clearTimeout(timer);
    unfollow();
    document.removeEventListener('visibilitychange', wake);
  };
}

export interface Live { data: ViewData | null; error: string | null }

const last = new Map<ViewName, ViewData>();
/** Nothing of one login may be seen by the next. */
export const forget = (): void => { last.clear(); kept.set([]); };

export function useView(name: ViewName): Live {
  const [live, set] = useState<Live>({ data: last.get(name) ?? null, error: null });
  useEffect(() => poll(async () => {
    try {
      const data = await view(name);
      last.set(name, data);
      set({ data, error: null });
    } catch (error) {
      set((old) => ({ ...old, error: error instanceof Error ? error.message : String(error) }));
      throw error;
    }
  }, everyOf(name)), [name]);
  return live;
}

const kept = new Store<Sample[]>([]);

export function useSamples(): Sample[] {
  useEffect(() => poll(async () => {
    const old = kept.get();
    const fresh = await samples(old.at(-1)?.at ?? 0);
    if (fresh.length) kept.set([...old, ...fresh].filter((one) => one.at > (fresh.at(-1)?.at ?? 0) - HOUR_MS));
  }, 1_000), []);
  return useStore(kept);
}

/** The proxy reads its counters once in 20 s. */
const RECENT_EVERY_MS = 5_000;

/** The last hour by digest or by server; null until it is known. An empty query asks nothing. */
export function useRecent(query: string): Recent | null {
  const [found, set] = useState<{ query: string; data: Recent } | null>(null);
  useEffect(() => (query ? poll(async () => { const data = await recent(query); set({ query, data }); }, RECENT_EVERY_MS) : undefined), [query]);
  return found?.query === query ? found.data : null;
}

/** How fast counters move between two answers: `rates(key, value)` is a number per second, or null at first. */
export function useRates(at: number | undefined): (key: string, value: string | null | undefined) => number | null {
  const seen = useRef(new Map<string, { at: number; value: number; rate: number | null }>());
  return (key, value) => {
    if (at === undefined) return null;
    const now = num(value);
    const old = seen.current.get(key);
    if (old && old.at === at) return old.rate;
    const rate = old && now >= old.value ? (now - old.value) * 1000 / (at - old.at) : null;
    seen.current.set(key, { at, value: now, rate });
    return rate;
  };
}

/** The time now, once a second. */
export function useNow(): number {
  const [now, set] = useState(Date.now());
  useEffect(() => {
    const timer = window.setInterval(() => set(Date.now()), 1_000);
    return () => window.clearInterval(timer);
  }, []);
  return now;
}

export const rowsOf = (data: ViewData | null, key: string): Rec[] => data?.results[key]?.rows ?? [];
