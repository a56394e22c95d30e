// Light, dark, or as the system says.
import { Store } from './store';

export type Theme = 'auto' | 'light' | 'dark';
const saved = localStorage.getItem('tidegate.theme');
export const theme = new Store<Theme>(saved === 'light' || saved === 'dark' ? saved : 'auto');

function show(): void {
  document.documentElement.dataset.theme = theme.get();
}
export function nextTheme(): void {
  const dark = matchMedia('(prefers-color-scheme: dark)').matches;
  const order: Theme[] = dark ? ['auto', 'light', 'dark'] : ['auto', 'dark', 'light'];
  const next = order[(order.indexOf(theme.get()) + 1) % order.length] ?? 'auto';
  localStorage.setItem('tidegate.theme', next);
  theme.set(next);
  show();
}
show();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => theme.set(theme.get()));

/** A colour of the style sheet as it is now, for canvases. */
export function colour(name: string): string {
  const probe = document.createElement('span');
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
