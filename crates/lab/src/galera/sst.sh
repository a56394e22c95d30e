#!/bin/bash
# A state transfer for Galera nodes of one machine that started from copies of one data directory. Usually it is only the
# hand-over that precedes an incremental transfer (IST); where the donor's cache does not reach far enough it copies the data.
# A file "hold" in $TIDEGATE_SST_DIR keeps the donor in its state until it is removed.
role= address= gtid= domain=0 bypass=no datadir= parent=$PPID
while [ $# -gt 0 ]; do
  case $1 in
    --role) role=$2; shift ;;
    --address) address=$2; shift ;;
    --gtid) gtid=$2; shift ;;
    --gtid-domain-id) domain=$2; shift ;;
    --datadir) datadir=$2; shift ;;
    --parent) parent=$2; shift ;;
    --bypass) bypass=yes ;;
    --mysqld-args) break ;;
  esac
  shift
done
# MariaDB 11 writes a login for full transfers to a donor's standard input, and gives up when nobody reads it. Before that it is empty.
[ "$role" = joiner ] || cat >/dev/null
port=${address##*:}
mail=$TIDEGATE_SST_DIR/${port%%/*}

# Waits for a file, as long as the server lives.
await() { until [ -s "$1" ]; do kill -0 "$parent" 2>/dev/null || exit 32; sleep 0.02; done; }

# Copies what the tables are made of: not what a node knows of itself.
copy_data() {
  local own=(galera.cache grastate.dat gvwstate.dat tables_flushed auto.cnf '*.pid' 'bin.*') name not=()
  for name in "${own[@]}"; do not+=(! -name "$name"); done
  find "$2" -mindepth 1 -maxdepth 1 "${not[@]}" -exec rm -rf {} + || return
  find "$1" -mindepth 1 -maxdepth 1 "${not[@]}" -exec cp -a --sparse=always -t "$2" {} +
}

if [ "$role" = joiner ]; then
  rm -f "$mail"
  echo "$datadir" >"$mail.datadir"
  echo "ready $address"
  await "$mail"
  read -r position <"$mail"
  [ "$position" != failed ] || exit 32
  echo "$position"
  exit
fi
state="$gtid $domain"
if [ $bypass = yes ]; then
  while [ -e "$TIDEGATE_SST_DIR/hold" ]; do sleep 0.02; done
else
  rm -f "$datadir/tables_flushed"
  echo "flush tables"
  await "$datadir/tables_flushed"
  state=$(<"$datadir/tables_flushed")
  copy_data "$datadir" "$(<"$mail.datadir")" >&2 || { echo failed >"$mail"; exit 22; }
  rm -f "$datadir/tables_flushed"
fi
echo continue
echo "$state" >"$mail.new"
mv "$mail.new" "$mail"
echo "done $state"
