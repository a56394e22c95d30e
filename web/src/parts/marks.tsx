// What was changed while a chart's numbers moved: loads, roles, starts and upgrades, as lines with a letter.
import type uPlot from 'uplot';
import type { ViewData } from '../api';
import { clock, num, server } from '../format';
import { rowsOf } from '../live';
import { colour } from '../theme';

export type MarkKind = 'load' | 'role' | 'start' | 'upgrade';
/** `at` is Unix ms. */
export interface Mark { at: number; kind: MarkKind; text: string }

const LOOKS: Record<MarkKind, { letter: string; colour: string; word: string }> = {
  load: { letter: 'L', colour: '--c2', word: 'load' },
  role: { letter: 'R', colour: '--c4', word: 'role' },
  start: { letter: 'S', colour: '--muted', word: 'start' },
  upgrade: { letter: 'U', colour: '--muted', word: 'upgrade' },
};
/** Changes of one kind so close together, ms, are one mark. */
const TOGETHER_MS = 2_000;
/** Marks that are written out below the charts' buttons; the others are behind a button. */
const LISTED = 6;

/** Marks of the last hour, oldest first. What this login may not read leaves none. */
export function marksOf(data: ViewData): Mark[] {
  const loads = rowsOf(data, 'loads').map((row): Mark => ({ at: num(row.time) * 1_000, kind: 'load', text: `${row.command}${row.changes ? ` (${row.changes})` : ''}` }));
  const roles = rowsOf(data, 'changes').map((row): Mark => ({ at: num(row.time_ms), kind: 'role', text: row.hostname ? `${server(row.hostname, row.port)} ${row.from_state} → ${row.to_state}` : `writer of cluster ${row.cluster}: ${row.to_state}` }));
  const starts = rowsOf(data, 'starts').map((row): Mark => (row.kind === 'upgrade' ? { at: num(row.timestamp) * 1_000, kind: 'upgrade', text: `upgrade to ${row.version}` } : { at: num(row.timestamp) * 1_000, kind: 'start', text: `start of ${row.version}` }));
  return [...loads, ...roles, ...starts].sort((a, b) => a.at - b.at).reduce<Mark[]>((all, mark) => {
    const last = all.findLast((one) => one.kind === mark.kind);
    if (!last || mark.at - last.at >= TOGETHER_MS) return [...all, mark];
    last.text += `; ${mark.text}`;
    return all;
  }, []);
}

/** Draws each mark over the whole height of the plot. */
export function drawMarks(marks: () => Mark[]): uPlot.Plugin {
  const draw = (plot: uPlot) => {
    const { ctx, bbox } = plot;
    const ratio = window.devicePixelRatio || 1;
    ctx.save();
    ctx.lineWidth = ratio;
    ctx.font = `bold ${10 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = 'center';
    ctx.textBaseline = 'top';
    for (const mark of marks()) {
      const x = plot.valToPos(mark.at, 'x', true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      const looks = LOOKS[mark.kind];
      ctx.strokeStyle = ctx.fillStyle = colour(looks.colour);
      ctx.setLineDash([3 * ratio, 3 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top + 12 * ratio);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.fillText(looks.letter, Math.min(Math.max(x, bbox.left + 5 * ratio), bbox.left + bbox.width - 5 * ratio), bbox.top);
    }
    ctx.restore();
  };
  return { hooks: { draw } };
}

/** The marks in words, newest first: the older ones can be opened. */
export function MarkList({ marks }: { marks: Mark[] }) {
  if (!marks.length) return null;
  const newest = [...marks].reverse();
  const item = (mark: Mark) => <li key={`${mark.kind}${mark.at}`} class={`mark-${mark.kind}`}><b aria-hidden="true">{LOOKS[mark.kind].letter}</b> {clock(mark.at)} {LOOKS[mark.kind].word}: {mark.text}</li>;
  return (
    <div class="marks">
      <ul aria-label="Marks in the charts">{newest.slice(0, LISTED).map(item)}</ul>
      {newest.length > LISTED && (
        <details>
          <summary>{newest.length - LISTED} more before these</summary>
          <ul aria-label="Older marks in the charts">{newest.slice(LISTED).map(item)}</ul>
        </details>
      )}
    </div>
  );
}
