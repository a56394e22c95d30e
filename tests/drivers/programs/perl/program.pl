# Perl: DBI with DBD::mysql (MariaDB Connector/C underneath).
use strict;
use warnings;
use utf8;
use DBI;
use JSON::PP;
use Digest::SHA qw(sha256_hex);

my $json = JSON::PP->new->canonical->allow_nonref->allow_blessed->latin1(0)->utf8(1);

sub connection {
    my (%options) = @_;
    my $dsn = "DBI:mysql:database=$ENV{DRIVERS_DATABASE};host=$ENV{DRIVERS_HOST};port=$ENV{DRIVERS_PORT};mysql_local_infile=1";
    $dsn .= ";mysql_compression=1" if $options{compress};
    $dsn .= ";mysql_ssl=1;mysql_ssl_optional=1" if $options{tls};
    $dsn .= ";mysql_server_prepare=1" if $options{prepare};
    $dsn .= ";mysql_multi_statements=1" if $options{multi};
    my $c = DBI->connect($dsn, $ENV{DRIVERS_USER}, $options{password} // $ENV{DRIVERS_PASSWORD}, { RaiseError => 1, PrintError => 0, AutoCommit => $options{autocommit} // 1, mysql_enable_utf8mb4 => 1 });
    return $c;
}

sub rows { my ($c, @args) = @_; return $c->selectall_arrayref(shift @args, undef, @args) }

sub slurp { my ($path) = @_; open my $in, '<:encoding(UTF-8)', "$ENV{DRIVERS_SQL}/$path" or die "$path: $!"; local $/; return scalar <$in> }

sub failure { my ($c, $sql) = @_; eval { $c->do($sql); 1 } and die "no error: $sql"; return [$c->err, $c->state, $c->errstr] }

my @tests = (
    connect => sub { rows(connection(), "SELECT 1, 'b', NULL, DATABASE()") },
    tls => sub { rows(connection(tls => 1), "SELECT 'maybe over TLS'") },
    compressed => sub { sha256_hex(rows(connection(compress => 1), "SELECT REPEAT('abc', 300000)")->[0][0]) },
    wrong_password => sub { eval { connection(password => 'wrong') }; $DBI::err },
    types_text => sub {
        my $c = connection();
        $c->do('DROP TABLE IF EXISTS every_type');
        $c->do($_) for grep { /\S/ } split /;\n/, slurp('types.sql');
        rows($c, 'SELECT * FROM every_type ORDER BY id');
    },
    types_prepared => sub { rows(connection(prepare => 1), 'SELECT * FROM every_type WHERE id > ? ORDER BY id', 0) },
    attributes => sub { my $s = connection()->prepare('SELECT * FROM every_type'); $s->execute; [@{$s->{NAME}}, @{$s->{TYPE}}, @{$s->{mysql_type_name}}, @{$s->{NULLABLE}}] },
    prepared_many => sub {
        my $c = connection(prepare => 1);
        $c->do('DROP TABLE IF EXISTS perl_many');
        $c->do('CREATE TABLE perl_many (i INT PRIMARY KEY AUTO_INCREMENT, t VARCHAR(30), n INT)');
        my $s = $c->prepare('INSERT INTO perl_many (t, n) VALUES (?, ?)');
        my @ids = map { $s->execute("é$_", $_ % 3 ? $_ : undef); $s->{mysql_insertid} } 1 .. 50;
        [\@ids, rows($c, 'SELECT * FROM perl_many WHERE i > ? ORDER BY i', 45)];
    },
    unicode => sub { rows(connection(), "SELECT ?, HEX(?), 'Ж 漢字 😀'", "é 😀 ' \\", "😀") },
    transactions => sub {
        my ($c, $other) = (connection(autocommit => 0), connection());
        $c->do('DROP TABLE IF EXISTS perl_trx');
        $c->do('CREATE TABLE perl_trx (i INT)');
        my @seen;
        for my $end (qw(rollback commit)) {
            $c->do('INSERT INTO perl_trx VALUES (1)');
            push @seen, rows($other, 'SELECT COUNT(*) FROM perl_trx');
            $c->$end;
            push @seen, rows($other, 'SELECT COUNT(*) FROM perl_trx');
        }
        $c->disconnect;
        \@seen;
    },
    results => sub {
        my $c = connection();
        $c->do('DROP TABLE IF EXISTS perl_ids');
        $c->do('CREATE TABLE perl_ids (i INT PRIMARY KEY AUTO_INCREMENT, t INT)');
        [map { [$c->do($_), $c->{mysql_insertid}, $c->{mysql_info}, $c->{mysql_warning_count}] } 'INSERT INTO perl_ids (t) VALUES (1), (2), (3)', 'UPDATE perl_ids SET t = 2', 'DROP TABLE IF EXISTS no_such', 'DELETE FROM perl_ids'];
    },
    errors => sub { my $c = connection(); [map { failure($c, $_) } 'SELECT * FROM nowhere', 'SELEC 1', 'USE nowhere', "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'own'"] },
    multi => sub {
        my $s = connection(multi => 1)->prepare("SELECT 1; DO 1; SELECT 'x;y', 2");
        $s->execute;
        my @seen;
        do { push @seen, $s->{NUM_OF_FIELDS} ? $s->fetchall_arrayref : $s->rows } while $s->more_results;
        \@seen;
    },
    procedure => sub {
        my $c = connection();
        $c->do('DROP PROCEDURE IF EXISTS two_results');
        $c->do(slurp('procedure.sql'));
        $c->do('SET @b = 0, @c = 10');
        my $s = $c->prepare('CALL two_results(5, @b, @c)');
        $s->execute;
        my @seen;
        do { push @seen, $s->fetchall_arrayref if $s->{NUM_OF_FIELDS} } while $s->more_results;
        [@seen, rows($c, 'SELECT @b, @c')];
    },
    load_data => sub {
        my $path = "$ENV{DRIVERS_SCRATCH}/perl.csv";
        open my $out, '>', $path or die $!;
        print $out "1,one\n2,two\n" x 4000;
        close $out;
        my $c = connection();
        $c->do('DROP TABLE IF EXISTS perl_loaded');
        $c->do('CREATE TABLE perl_loaded (i INT, t VARCHAR(20))');
        [$c->do("LOAD DATA LOCAL INFILE '$path' INTO TABLE perl_loaded FIELDS TERMINATED BY ','"), rows($c, 'SELECT COUNT(*), SUM(i) FROM perl_loaded')];
    },
    big_blob => sub {
        my $c = connection();
        $c->do('DROP TABLE IF EXISTS perl_blob');
        $c->do('CREATE TABLE perl_blob (b LONGTEXT)');
        my $blob = 'x' x (14 << 20);
        $c->do('INSERT INTO perl_blob VALUES (?)', undef, $blob);
        $c->{LongReadLen} = 30 << 20;
        [rows($c, 'SELECT LENGTH(b), SHA2(b, 256) FROM perl_blob'), rows($c, 'SELECT b FROM perl_blob')->[0][0] eq $blob ? 'same' : 'different'];
    },
    use_result => sub { my $c = connection(); my $s = $c->prepare('SELECT id FROM every_type ORDER BY id', { mysql_use_result => 1 }); $s->execute; my $seen = $s->fetchall_arrayref; [$seen, rows($c, 'SELECT 1')] },
    crowd => sub {
        my @all = map { connection() } 1 .. 12;
        $all[$_]->do("SET time_zone = '+0" . ($_ % 10) . ":00'") for 0 .. $#all;
        [map { rows($_, 'SELECT @@time_zone') } @all, @all];
    },
    ping => sub { connection()->ping ? 'yes' : 'no' },
);
$| = 1;
while (my ($name, $test) = splice @tests, 0, 2) {
    my $seen = eval { local $SIG{ALRM} = sub { die "no end in time\n" }; alarm 40; my $s = $test->(); alarm 0; $s };
    my $error = $@;
    alarm 0;
    my $text = $json->encode($error ? "$error" : $seen);
    $text = substr($text, 0, 200) . sha256_hex($text) if length $text > 5000;
    utf8::decode($text);
    print '@@ ', $json->encode({ test => $name, status => $error ? 'fail' : 'pass', detail => $text }), "\n";
}
