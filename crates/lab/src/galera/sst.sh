#!/bin/bash
# A state transfer for Galera nodes of one machine that started from copies of one data directory: only the hand-over that
# precedes an incremental transfer (IST). A full one is refused, so that a test notices when it would have happened.
# A file "hold" in $TIDEGATE_SST_DIR keeps the donor in its state until it is removed.
role= address= gtid= domain=0 bypass=no
while [ $# -gt 0 ]; do
  case $1 in
    --role) role=$2; shift ;;
    --address) address=$2; shift ;;
    --gtid) gtid=$2; shift ;;
    --gtid-domain-id) domain=$2; shift ;;
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
if [ "$role" = joiner ]; then
  rm -f "$mail"
  echo "ready $address"
  until [ -s "$mail" ]; do kill -0 "$parent" 2>/dev/null || exit 32; sleep 0.02; done
  read -r position <"$mail"
  [ "$position" != refused ] || exit 32
  echo "$position"
elif [ $bypass = yes ]; then
  while [ -e "$TIDEGATE_SST_DIR/hold" ]; do sleep 0.02; done
  echo continue
  echo "$gtid $domain" >"$mail.new"
  mv "$mail.new" "$mail"
  echo "done $gtid $domain"
else
  echo refused >"$mail"
  echo "only incremental state transfer is supported here" >&2
  exit 22
fi
